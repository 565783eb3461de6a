/* What programs are told, and when: events that are to be acknowledged or move with their identifier, the depths
   that a peer may use, solicited events, and errors of single calls and of the peer. Both ends are in this program.
   Argument: an address of this host. With "unanswered" before it: an address where a listener answers nobody; with
   "silent": one whose host falls silent after the connection, before there is a line to be read. */
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <time.h>

enum { SIZE = 4096, SOON = 300, AT_LAST = 20000, LEFT = 2 };
static const int ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC;
static char memory[2][SIZE] __attribute__((aligned(4096)));
static struct sockaddr *here;

struct end {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *told;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
};

static int readable(int fd, int milliseconds)
{
	struct pollfd fds = { .fd = fd, .events = POLLIN };

	return poll(&fds, 1, milliseconds);
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(readable(channel->fd, AT_LAST) == 1 && !rdma_get_cm_event(channel, &event));
	if (event->event != type)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	return event;
}

static struct rdma_cm_id *identifier(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	return id;
}

static void prepare(struct end *end, struct rdma_cm_id *id, char *memory)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	end->id = id;
	CHECK((end->told = ibv_create_comp_channel(id->verbs)));
	CHECK((end->cq = ibv_create_cq(id->verbs, 16, NULL, end->told, 0)));
	CHECK((end->mr = ibv_reg_mr(id->pd, memory, SIZE, ACCESS)));
	init.send_cq = init.recv_cq = end->cq;
	CHECK(!rdma_create_qp(id, NULL, &init));
}

static void finish(struct end *end)
{
	rdma_destroy_qp(end->id);
	CHECK(!ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq) && !ibv_destroy_comp_channel(end->told));
	CHECK(!rdma_destroy_id(end->id));
}

static struct ibv_wc completion(struct end *end)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(end->cq, 1, &wc))
		;
	return wc;
}

static void *destroy(void *id)
{
	CHECK(!rdma_destroy_id(id));
	return NULL;
}

static int ends_within(pthread_t thread, int milliseconds)
{
	struct timespec until;
	int joined;

	CHECK(!clock_gettime(CLOCK_REALTIME, &until));
	until.tv_sec += milliseconds / 1000;
	until.tv_nsec += milliseconds % 1000 * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	joined = pthread_timedjoin_np(thread, NULL, &until);
	CHECK(!joined || joined == ETIMEDOUT);
	return !joined;
}

/* An identifier lives until the program has acknowledged all events of it (rdma_destroy_id(3)). */
static void check_destruction(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = identifier(channel);
	struct rdma_cm_event *events[2];
	pthread_t destroyer;

	CHECK(!rdma_resolve_addr(id, NULL, here, 2000));
	events[0] = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	events[1] = next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!pthread_create(&destroyer, NULL, destroy, id));
	CHECK(!ends_within(destroyer, SOON));
	CHECK(!rdma_ack_cm_event(events[1]) && !ends_within(destroyer, SOON));
	CHECK(!rdma_ack_cm_event(events[0]) && ends_within(destroyer, AT_LAST));
}

/* Events that wait go with their identifier (rdma_migrate_id(3)), and those of others stay. */
static void check_migration(struct rdma_event_channel *channel, struct rdma_event_channel *other)
{
	struct rdma_cm_id *moves = identifier(channel), *stays = identifier(channel);

	CHECK(!rdma_resolve_addr(moves, NULL, here, 2000) && readable(channel->fd, AT_LAST) == 1);
	CHECK(!rdma_migrate_id(moves, other) && !readable(channel->fd, 0));
	CHECK(!rdma_resolve_addr(stays, NULL, here, 2000) && readable(channel->fd, AT_LAST) == 1);
	CHECK(readable(other->fd, AT_LAST) == 1);
	expect(other, moves, RDMA_CM_EVENT_ADDR_RESOLVED);
	expect(channel, stays, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_destroy_id(moves) && !rdma_destroy_id(stays));
}

static void expect_depths(struct rdma_cm_event *event, int answers, int asks)
{
	CHECK(event->param.conn.responder_resources == answers && event->param.conn.initiator_depth == asks);
	CHECK(!rdma_ack_cm_event(event));
}

/* Connects both ends. Without parameters of its own a server takes the depths that its peer asks for. */
static void join(struct rdma_event_channel *servers, struct rdma_event_channel *clients, struct end *server,
		 struct end *client)
{
	struct rdma_conn_param param = { .responder_resources = 3, .initiator_depth = 5 };
	struct rdma_cm_id *listener = identifier(servers);
	struct rdma_cm_event *event;

	CHECK(!rdma_bind_addr(listener, here) && !rdma_listen(listener, 1));
	prepare(client, resolved(clients, here), memory[0]);
	CHECK(!rdma_connect(client->id, &param));
	event = next(servers, RDMA_CM_EVENT_CONNECT_REQUEST);
	prepare(server, event->id, memory[1]);
	expect_depths(event, 5, 3);
	CHECK(!rdma_accept(server->id, NULL));
	expect_depths(next(servers, RDMA_CM_EVENT_ESTABLISHED), 5, 3);
	expect_depths(next(clients, RDMA_CM_EVENT_ESTABLISHED), 3, 5);
	CHECK(!rdma_destroy_id(listener));
}

/* A window gives peers nothing of a region that was not registered for windows (ibv_reg_mr(3)). */
static void check_windows(struct end *end)
{
	struct ibv_mw *first = ibv_alloc_mw(end->id->pd, IBV_MW_TYPE_1);
	struct ibv_mw *second = ibv_alloc_mw(end->id->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.bind_info = { .mr = end->mr, .addr = (uintptr_t)end->mr->addr, .length = 8,
			       .mw_access_flags = IBV_ACCESS_REMOTE_READ },
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW }, *bad = NULL;

	CHECK(first && second);
	CHECK(ibv_bind_mw(end->id->qp, first, &bind) == EINVAL);
	wr.bind_mw.mw = second;
	wr.bind_mw.rkey = ibv_inc_rkey(second->rkey);
	wr.bind_mw.bind_info = bind.bind_info;
	CHECK(ibv_post_send(end->id->qp, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(!ibv_dealloc_mw(first) && !ibv_dealloc_mw(second));
}

/* What is given back uses nothing any more (ibv_alloc_pd(3), ibv_alloc_mw(3)). */
static void check_given_back(struct ibv_context *verbs)
{
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_device_attr device;

	CHECK(pd && mw && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_pd(pd) && !ibv_query_device(verbs, &device));
	for (int times = 0; times <= device.max_pd; times++)
		CHECK((pd = ibv_alloc_pd(verbs)) && !ibv_dealloc_pd(pd));
}

static void *destroy_cq(void *cq)
{
	CHECK(!ibv_destroy_cq(cq));
	return NULL;
}

/* A completion queue lives until its events are acknowledged (ibv_get_async_event(3)): one that has overflowed. */
static void check_lost_queue(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr receive = {}, *bad;
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	struct ibv_async_event event;
	pthread_t destroyer;
	struct ibv_qp *qp;

	CHECK(cq);
	init.cap = (struct ibv_qp_cap){ .max_send_wr = 1, .max_recv_wr = cq->cqe + 1, .max_recv_sge = 1 };
	CHECK((qp = ibv_create_qp(id->pd, &init)));
	for (int receives = 0; receives <= cq->cqe; receives++)
		CHECK(!ibv_post_recv(qp, &receive, &bad));
	CHECK(!ibv_modify_qp(qp, &error, IBV_QP_STATE));
	CHECK(!ibv_get_async_event(id->verbs, &event));
	CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq && !ibv_destroy_qp(qp));
	CHECK(!pthread_create(&destroyer, NULL, destroy_cq, cq) && !ends_within(destroyer, SOON));
	ibv_ack_async_event(&event);
	CHECK(ends_within(destroyer, AT_LAST));
}

/* What a program leaves of what was there when it asked for an event is the event, once, also when it polls one by
   one (ibv_create_cq_ex(3)). */
static void check_left(struct rdma_cm_id *id)
{
	struct ibv_comp_channel *told = ibv_create_comp_channel(id->verbs);
	struct ibv_cq_init_attr_ex asked = { .cqe = 4, .channel = told, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *one_by_one = ibv_create_cq_ex(id->verbs, &asked);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(one_by_one), *of;
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = LEFT + 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr receive = {}, *bad;
	struct ibv_poll_cq_attr all = {};
	struct ibv_qp *qp;
	void *context;

	CHECK(told && cq && (qp = ibv_create_qp(id->pd, &init)));
	for (int receives = 0; receives <= LEFT; receives++)
		CHECK(!ibv_post_recv(qp, &receive, &bad));
	CHECK(!ibv_modify_qp(qp, &error, IBV_QP_STATE));
	while (ibv_start_poll(one_by_one, &all))
		;
	ibv_end_poll(one_by_one);
	/* The others are flushed as well by now. */
	CHECK(!readable(told->fd, SOON) && !ibv_req_notify_cq(cq, 0));
	CHECK(!ibv_start_poll(one_by_one, &all));
	ibv_end_poll(one_by_one);
	CHECK(readable(told->fd, AT_LAST) == 1 && !ibv_get_cq_event(told, &of, &context) && of == cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_start_poll(one_by_one, &all) && ibv_next_poll(one_by_one) == ENOENT);
	ibv_end_poll(one_by_one);
	CHECK(!readable(told->fd, SOON));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(told));
}

static void post(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK(!ibv_post_send(end->id->qp, wr, &bad));
}

/* A Send wakes a receiver that asks for solicited events only if it says so. */
static void check_solicited(struct end *server, struct end *client)
{
	struct ibv_recv_wr receive = {}, *bad;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND };
	struct ibv_cq *told;
	void *context;

	for (int twice = 0; twice < 2; twice++)
		CHECK(!ibv_post_recv(server->id->qp, &receive, &bad));
	CHECK(!ibv_req_notify_cq(server->cq, 1));
	post(client, &send);
	CHECK(completion(server).status == IBV_WC_SUCCESS && !readable(server->told->fd, SOON));
	send.send_flags = IBV_SEND_SOLICITED;
	post(client, &send);
	CHECK(readable(server->told->fd, AT_LAST) == 1 && !ibv_get_cq_event(server->told, &told, &context));
	CHECK(told == server->cq && completion(server).status == IBV_WC_SUCCESS);
	ibv_ack_cq_events(told, 1);
	for (int twice = 0; twice < 2; twice++)
		CHECK(completion(client).status == IBV_WC_SUCCESS);
}

/* What the peer could not do, though it may: an Atomic Operation on no whole word. */
static void check_remote_error(struct end *server, struct end *client)
{
	struct ibv_sge word = { .addr = (uintptr_t)client->mr->addr, .length = 8, .lkey = client->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &word, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = { .remote_addr = (uintptr_t)server->mr->addr + 4, .rkey = server->mr->rkey },
	};

	post(client, &wr);
	CHECK(completion(client).status == IBV_WC_REM_OP_ERR);
}

static void check_unanswered(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	struct end end;

	prepare(&end, resolved(channel, here), memory[0]);
	CHECK(!rdma_connect(end.id, NULL));
	event = next(channel, RDMA_CM_EVENT_UNREACHABLE);
	CHECK(event->id == end.id && event->status == -ETIMEDOUT && !rdma_ack_cm_event(event));
	finish(&end);
}

/* A connection ends with its queue pair, whether or not the peer answers any more. */
static void check_silent(struct rdma_event_channel *channel)
{
	struct end end;

	prepare(&end, resolved(channel, here), memory[0]);
	CHECK(!rdma_connect(end.id, NULL));
	CHECK(!rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_ESTABLISHED)));
	fprintf(stderr, "connected\n");
	CHECK(getchar() != EOF);
	rdma_destroy_qp(end.id);
	CHECK(!rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_DISCONNECTED)));
	finish(&end);
}

static void check_all(struct rdma_event_channel *servers, struct rdma_event_channel *clients)
{
	struct end server, client;

	check_destruction(clients);
	check_migration(clients, servers);
	join(servers, clients, &server, &client);
	check_windows(&client);
	check_given_back(client.id->verbs);
	check_lost_queue(client.id);
	check_left(client.id);
	check_solicited(&server, &client);
	check_remote_error(&server, &client);
	CHECK(!rdma_ack_cm_event(next(servers, RDMA_CM_EVENT_DISCONNECTED)));
	CHECK(!rdma_ack_cm_event(next(clients, RDMA_CM_EVENT_DISCONNECTED)));
	finish(&server);
	finish(&client);
}

int main(int count, char **arguments)
{
	struct rdma_event_channel *servers = rdma_create_event_channel(), *clients = rdma_create_event_channel();
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7471) };

	here = (struct sockaddr *)&address;
	CHECK(servers && clients && count > 1 && inet_pton(AF_INET, arguments[count - 1], &address.sin_addr) == 1);
	if (count == 2)
		check_all(servers, clients);
	else if (!strcmp(arguments[1], "silent"))
		check_silent(clients);
	else
		check_unanswered(clients);
	rdma_destroy_event_channel(servers);
	rdma_destroy_event_channel(clients);
	return 0;
}
