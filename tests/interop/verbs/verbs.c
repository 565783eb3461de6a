/* Connections and work by librdmacm and libibverbs: see verbs.h. */
#include "verbs.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread char problem[200];

int failed(const char *format, ...)
{
	va_list more;

	va_start(more, format);
	vsnprintf(problem, sizeof(problem), format, more);
	va_end(more);
	return -1;
}

static int failed_call(const char *call)
{
	return failed("%s: %s", call, strerror(errno));
}

struct ibv_pd *domain(void)
{
	struct ibv_context **devices = rdma_get_devices(NULL);

	if (!devices || !devices[0]) {
		failed("no RDMA device");
		return NULL;
	}
	struct ibv_pd *pd = ibv_alloc_pd(devices[0]);

	rdma_free_devices(devices);
	if (!pd)
		failed_call("ibv_alloc_pd");
	return pd;
}

static int find(const char *address, const char *port, struct addrinfo **found)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM };
	int error = getaddrinfo(address, port, &hints, found);

	return error ? failed("%s port %s: %s", address, port, gai_strerror(error)) : 0;
}

static int make_id(struct end *end)
{
	memset(end, 0, sizeof(*end));
	end->events = rdma_create_event_channel();
	if (!end->events)
		return failed_call("rdma_create_event_channel");
	if (rdma_create_id(end->events, &end->id, NULL, RDMA_PS_TCP))
		return failed_call("rdma_create_id");
	return 0;
}

int listen_at(struct end *listener, const char *address, const char *port)
{
	struct addrinfo *found;

	if (make_id(listener) || find(address, port, &found))
		return -1;
	int error = rdma_bind_addr(listener->id, found->ai_addr) || rdma_listen(listener->id, 64);

	freeaddrinfo(found);
	return error ? failed_call("rdma_listen") : 0;
}

/* Waits until a descriptor can be read: 1, or 0 when it can't be in time. */
static int readable(int fd, int milliseconds)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int ready;

	do
		ready = poll(&poll_fd, 1, milliseconds);
	while (ready < 0 && errno == EINTR);
	return ready > 0;
}

static int get_event(struct end *end, struct rdma_cm_event **event)
{
	if (!readable(end->events->fd, PATIENCE))
		return failed("no event within %d ms", PATIENCE);
	return rdma_get_cm_event(end->events, event) ? failed_call("rdma_get_cm_event") : 0;
}

static void take_terms(const struct rdma_conn_param *from, struct terms *to)
{
	memset(to, 0, sizeof(*to));
	/* Each end's IRD is the other's word for its own ORD: these are the peer's own. */
	to->ird = from->initiator_depth;
	to->ord = from->responder_resources;
	if (from->private_data) {
		to->length = from->private_data_len;
		memcpy(to->private_data, from->private_data, to->length);
	}
}

static struct rdma_conn_param give_terms(const struct terms *terms)
{
	return (struct rdma_conn_param){
		.private_data = terms->length ? terms->private_data : NULL,
		.private_data_len = terms->length,
		.responder_resources = terms->ird,
		.initiator_depth = terms->ord,
	};
}

int next_event(struct end *end, enum rdma_cm_event_type *type, int *status, struct terms *terms)
{
	struct rdma_cm_event *event;

	if (get_event(end, &event))
		return -1;
	*type = event->event;
	*status = event->status;
	if (terms)
		take_terms(&event->param.conn, terms);
	rdma_ack_cm_event(event);
	return 0;
}

static int expect_event(struct end *end, enum rdma_cm_event_type wanted, struct terms *terms)
{
	enum rdma_cm_event_type type;
	int status;

	if (next_event(end, &type, &status, terms))
		return -1;
	if (type != wanted)
		return failed("%s with status %d", rdma_event_str(type), status);
	return 0;
}

int take_request(struct end *listener, struct end *end, struct terms *asked)
{
	struct rdma_cm_event *event;

	memset(end, 0, sizeof(*end));
	if (get_event(listener, &event))
		return -1;
	enum rdma_cm_event_type type = event->event;

	end->id = event->id;
	take_terms(&event->param.conn, asked);
	rdma_ack_cm_event(event);
	if (type != RDMA_CM_EVENT_CONNECT_REQUEST) {
		end->id = NULL;
		return failed("%s instead of a request", rdma_event_str(type));
	}
	end->events = rdma_create_event_channel();
	if (!end->events || rdma_migrate_id(end->id, end->events))
		return failed_call("rdma_migrate_id");
	return 0;
}

int resolve(struct end *end, const char *address, const char *port)
{
	struct addrinfo *found;

	if (make_id(end) || find(address, port, &found))
		return -1;
	int error = rdma_resolve_addr(end->id, NULL, found->ai_addr, PATIENCE);

	freeaddrinfo(found);
	if (error)
		return failed_call("rdma_resolve_addr");
	if (expect_event(end, RDMA_CM_EVENT_ADDR_RESOLVED, NULL))
		return -1;
	if (rdma_resolve_route(end->id, PATIENCE))
		return failed_call("rdma_resolve_route");
	return expect_event(end, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}

int make_queues(struct end *end, struct ibv_pd *pd, unsigned sends, unsigned receives)
{
	end->notices = ibv_create_comp_channel(pd->context);
	if (!end->notices)
		return failed_call("ibv_create_comp_channel");
	end->cq = ibv_create_cq(pd->context, (int)(sends + receives), NULL, end->notices, 0);
	if (!end->cq)
		return failed_call("ibv_create_cq");
	struct ibv_qp_init_attr how = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	return rdma_create_qp(end->id, pd, &how) ? failed_call("rdma_create_qp") : 0;
}

int accept_with(struct end *end, const struct terms *terms)
{
	struct rdma_conn_param how = give_terms(terms);

	if (rdma_accept(end->id, &how))
		return failed_call("rdma_accept");
	return expect_event(end, RDMA_CM_EVENT_ESTABLISHED, NULL);
}

int connect_with(struct end *end, const struct terms *terms, struct terms *answer)
{
	struct rdma_conn_param how = give_terms(terms);

	memset(answer, 0, sizeof(*answer));
	if (rdma_connect(end->id, &how))
		return failed_call("rdma_connect");
	return expect_event(end, RDMA_CM_EVENT_ESTABLISHED, answer);
}

int next_completion(struct end *end, int milliseconds, struct ibv_wc *done)
{
	for (;;) {
		int count = ibv_poll_cq(end->cq, 1, done);

		if (count)
			return count < 0 ? failed("ibv_poll_cq failed") : count;
		if (ibv_req_notify_cq(end->cq, 0))
			return failed_call("ibv_req_notify_cq");
		/* What came before the arming wakes nobody. */
		count = ibv_poll_cq(end->cq, 1, done);
		if (count)
			return count < 0 ? failed("ibv_poll_cq failed") : count;
		if (!readable(end->notices->fd, milliseconds))
			return 0;
		struct ibv_cq *cq;
		void *context;

		if (ibv_get_cq_event(end->notices, &cq, &context))
			return failed_call("ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
}

void destroy(struct end *end)
{
	if (end->id && end->id->qp)
		rdma_destroy_qp(end->id);
	if (end->cq)
		ibv_destroy_cq(end->cq);
	if (end->notices)
		ibv_destroy_comp_channel(end->notices);
	if (end->id)
		rdma_destroy_id(end->id);
	if (end->events)
		rdma_destroy_event_channel(end->events);
	memset(end, 0, sizeof(*end));
}

int make_memory(struct memory *memory, struct ibv_pd *pd, size_t length, int access)
{
	memory->length = length;
	/* No registration is empty. */
	memory->bytes = calloc(1, length ? length : 1);
	if (!memory->bytes)
		return failed("no memory for %zu bytes", length);
	memory->mr = ibv_reg_mr(pd, memory->bytes, length ? length : 1, access);
	return memory->mr ? 0 : failed_call("ibv_reg_mr");
}

void drop_memory(struct memory *memory)
{
	if (memory->mr)
		ibv_dereg_mr(memory->mr);
	free(memory->bytes);
	memset(memory, 0, sizeof(*memory));
}

static struct ibv_sge element(const struct memory *memory, size_t at, size_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)(memory->bytes + at),
		.length = (uint32_t)length,
		.lkey = memory->mr->lkey,
	};
}

int post_receive(struct end *end, uint64_t id, const struct memory *to, size_t at, size_t length)
{
	struct ibv_sge sge = element(to, at, length);
	struct ibv_recv_wr work = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(end->id->qp, &work, &bad);
	return errno ? failed_call("ibv_post_recv") : 0;
}

int post_send(struct end *end, uint64_t id, enum ibv_wr_opcode opcode, unsigned flags,
	      const struct memory *memory, size_t at, size_t length, uint32_t rkey, uint64_t remote)
{
	struct ibv_sge sge = element(memory, at, length);
	struct ibv_send_wr work = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags | IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	}, *bad;

	errno = ibv_post_send(end->id->qp, &work, &bad);
	return errno ? failed_call("ibv_post_send") : 0;
}

static uint64_t word(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + index * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* How many bytes of the word at a position there are, at most `most`; and where they begin in it. */
static size_t part(uint64_t position, size_t most, size_t *skip)
{
	*skip = position % 8;
	return 8 - *skip < most ? 8 - *skip : most;
}

void pattern_fill(uint64_t seed, uint64_t position, char *bytes, size_t length)
{
	for (size_t at = 0, skip, take; at < length; at += take) {
		uint64_t now = word(seed, (position + at) / 8);

		take = part(position + at, length - at, &skip);
		if (take == 8)
			memcpy(bytes + at, &now, 8);
		else
			memcpy(bytes + at, (char *)&now + skip, take);
	}
}

int64_t pattern_differs(uint64_t seed, uint64_t position, const char *bytes, size_t length)
{
	for (size_t at = 0, skip, take; at < length; at += take) {
		uint64_t now = word(seed, (position + at) / 8);

		take = part(position + at, length - at, &skip);
		if (take == 8 && !memcmp(&now, bytes + at, 8))
			continue;
		for (size_t i = 0; i < take; i++)
			if (((char *)&now)[skip + i] != bytes[at + i])
				return (int64_t)(at + i);
	}
	return -1;
}
