/* Two ends that tell each other the ports which they see (rdma_get_src_port(3), rdma_bind_addr(3), rsocket(7)).
   Arguments: "server" or "client", and the server's address. */
#include "check.h"
#include <rdma/rsocket.h>

enum { ANY, FOUND, NAMED, CONNECTIONS };
static const uint16_t NAME = 5150, NAME_OF_SOCKET = 5151, SOCKETS = 7472;

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
	int yes = 1;

	if (to == ANY) {
		queue_pair(id);
		return id;
	}
	CHECK(!rdma_destroy_id(id));
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)));
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
	/* With leave of both there may be two of a port, but one connection. */
	CHECK(!rdma_create_id(channel, &late, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(late, rdma_get_local_addr(ids[NAMED])) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(late));
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

/* The same of rsockets: from any port, and from a named one. */
static int listen_for_sockets(struct sockaddr_in address)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);

	address.sin_port = htons(SOCKETS);
	CHECK(listener >= 0 && !rbind(listener, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!rlisten(listener, 2));
	return listener;
}

static void serve_sockets(int listener)
{
	int sockets[2];

	for (int peer = 0; peer < 2; peer++) {
		struct sockaddr_in seen;
		socklen_t length = sizeof(seen);

		sockets[peer] = raccept(listener, (struct sockaddr *)&seen, &length);
		CHECK(sockets[peer] >= 0);
		CHECK(rsend(sockets[peer], &seen.sin_port, 2, 0) == 2);
	}
	/* Both stay until the peer has seen what it wants to see. */
	for (int peer = 0; peer < 2; peer++) {
		char end;

		CHECK(rrecv(sockets[peer], &end, 1, 0) == 0);
		rclose(sockets[peer]);
	}
	rclose(listener);
}

static int bound_socket(struct sockaddr_in local)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	local.sin_port = htons(NAME_OF_SOCKET);
	CHECK(socket >= 0 && !rbind(socket, (struct sockaddr *)&local, sizeof(local)));
	return socket;
}

static uint16_t port_of(int socket)
{
	struct sockaddr_in local;
	socklen_t length = sizeof(local);

	CHECK(!rgetsockname(socket, (struct sockaddr *)&local, &length));
	return local.sin_port;
}

static void connect_sockets(struct sockaddr_in address)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int sockets[2] = { rsocket(AF_INET, SOCK_STREAM, 0), bound_socket(any) }, late = bound_socket(any);

	address.sin_port = htons(SOCKETS);
	for (int peer = 0; peer < 2; peer++) {
		uint16_t seen;

		CHECK(!rconnect(sockets[peer], (struct sockaddr *)&address, sizeof(address)));
		CHECK(rrecv(sockets[peer], &seen, 2, MSG_WAITALL) == 2 && seen == port_of(sockets[peer]));
	}
	CHECK(port_of(sockets[1]) == htons(NAME_OF_SOCKET));
	CHECK(rconnect(late, (struct sockaddr *)&address, sizeof(address)) == -1 && errno == EADDRINUSE);
	rclose(late);
	rclose(sockets[0]);
	rclose(sockets[1]);
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(channel && count == 3 && inet_pton(AF_INET, arguments[2], &address.sin_addr) == 1);
	if (!strcmp(arguments[1], "server")) {
		int listener = listen_for_sockets(address);

		serve(channel, (struct sockaddr *)&address);
		serve_sockets(listener);
	} else {
		ask(channel, (struct sockaddr *)&address);
		connect_sockets(address);
	}
	rdma_destroy_event_channel(channel);
	return 0;
}
