/* Two ends that tell each other the ports which they see (rdma_get_src_port(3), rdma_bind_addr(3)). Arguments:
   "server" or "client", and the server's address. */
#include "check.h"

enum { ANY, FOUND, NAMED, CONNECTIONS };
static const uint16_t NAME = 5150;

static struct ibv_qp *queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	CHECK(!rdma_create_qp(id, NULL, &init));
	return id->qp;
}

/* Both ways to ask for it. */
static uint16_t own_port(struct rdma_cm_id *id)
{
	uint16_t port = rdma_get_src_port(id);

	CHECK(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_port == port);
	return port;
}

/* Tells each peer where it is seen. */
static void serve(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *listener, *ids[CONNECTIONS];

	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address) && !rdma_listen(listener, 4));
	for (int peer = 0; peer < CONNECTIONS; peer++) {
		struct rdma_conn_param param = { .private_data_len = sizeof(uint16_t) };
		struct rdma_cm_event *event;
		uint16_t seen;

		CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
		ids[peer] = event->id;
		CHECK(!rdma_ack_cm_event(event));
		seen = rdma_get_dst_port(ids[peer]);
		CHECK(own_port(ids[peer]) == htons(7471));
		queue_pair(ids[peer]);
		param.private_data = &seen;
		CHECK(!rdma_accept(ids[peer], &param));
		expect(channel, ids[peer], RDMA_CM_EVENT_ESTABLISHED);
	}
	for (int peer = 0; peer < CONNECTIONS; peer++) {
		struct rdma_cm_event *event;

		CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_DISCONNECTED);
		CHECK(!rdma_ack_cm_event(event));
	}
	for (int peer = 0; peer < CONNECTIONS; peer++) {
		rdma_destroy_qp(ids[peer]);
		CHECK(!rdma_destroy_id(ids[peer]));
	}
	CHECK(!rdma_destroy_id(listener));
}

/* An identifier with a queue pair, bound to a port of this host's address, or to none. */
static struct rdma_cm_id *bound(struct rdma_event_channel *channel, struct sockaddr *address, int to)
{
	struct rdma_cm_id *id = resolved(channel, address);
	struct sockaddr_in local = *(struct sockaddr_in *)rdma_get_local_addr(id);

	if (to == ANY) {
		queue_pair(id);
		return id;
	}
	CHECK(!rdma_destroy_id(id));
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	local.sin_port = to == NAMED ? htons(NAME) : 0;
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&local));
	resolve(channel, id, address);
	queue_pair(id);
	return id;
}

static void ask(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *ids[CONNECTIONS], *late;

	for (int to = ANY; to < CONNECTIONS; to++) {
		struct rdma_cm_id *id = ids[to] = bound(channel, address, to);
		struct rdma_cm_event *event;
		uint16_t before = own_port(id), seen;

		CHECK(to == ANY ? !before : before != 0);
		CHECK(to != NAMED || before == htons(NAME));
		CHECK(!rdma_connect(id, NULL));
		/* The call says it, not only the event. */
		CHECK(own_port(id) && (to == ANY || own_port(id) == before));
		CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ESTABLISHED);
		CHECK(event->param.conn.private_data_len >= sizeof(seen));
		memcpy(&seen, event->param.conn.private_data, sizeof(seen));
		CHECK(!rdma_ack_cm_event(event));
		CHECK(seen == own_port(id));
	}
	late = bound(channel, address, NAMED);
	CHECK(rdma_connect(late, NULL) == -1 && errno == EADDRINUSE);
	rdma_destroy_qp(late);
	CHECK(!rdma_destroy_id(late));
	for (int to = ANY; to < CONNECTIONS; to++) {
		CHECK(!rdma_disconnect(ids[to]));
		expect(channel, ids[to], RDMA_CM_EVENT_DISCONNECTED);
		rdma_destroy_qp(ids[to]);
		CHECK(!rdma_destroy_id(ids[to]));
	}
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(channel && count == 3 && inet_pton(AF_INET, arguments[2], &address.sin_addr) == 1);
	if (!strcmp(arguments[1], "server"))
		serve(channel, (struct sockaddr *)&address);
	else
		ask(channel, (struct sockaddr *)&address);
	rdma_destroy_event_channel(channel);
	return 0;
}
