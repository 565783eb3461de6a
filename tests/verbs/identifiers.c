/* Identifiers of the connection manager: what a second call may do, ports that two want, a queue pair that the
   program moves, a channel that it leaves, and peers that do not wait. Both ends are in this program. Argument:
   an address of this host. */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static const uint16_t SERVICE = 7471, NAMED = 5160, OTHER = 5161;
static struct sockaddr_in here;

static struct sockaddr *at(uint16_t port)
{
	static struct sockaddr_in places[2];
	static int next;
	struct sockaddr_in *place = &places[next++ % 2];

	*place = here;
	place->sin_port = htons(port);
	return (struct sockaddr *)place;
}

static struct rdma_cm_id *identifier(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	return id;
}

static struct rdma_cm_id *listening(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = identifier(channel);

	CHECK(!rdma_bind_addr(id, at(SERVICE)) && !rdma_listen(id, 4));
	return id;
}

static void queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	CHECK(!rdma_create_qp(id, NULL, &init));
}

/* A client whose request is on its way. */
static struct rdma_cm_id *asking(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = resolved(channel, at(SERVICE));

	queue_pair(id);
	CHECK(!rdma_connect(id, NULL));
	return id;
}

static struct rdma_cm_event *request(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	return event;
}

static void expect_refused(struct rdma_event_channel *channel, struct rdma_cm_id *id)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_REJECTED && event->id == id);
	CHECK(event->status == -ECONNREFUSED && !rdma_ack_cm_event(event));
}

static void gone(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

static int is_quiet(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, 100) == 0;
}

/* rdma_resolve_addr and rdma_resolve_route are for an identifier that has not been there. */
static void check_second_calls(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = resolved(channel, at(SERVICE)), *listener = listening(channel);

	CHECK(rdma_resolve_addr(id, NULL, at(SERVICE), 2000) == -1 && errno == EINVAL);
	CHECK(rdma_resolve_route(id, 2000) == -1 && errno == EINVAL);
	CHECK(rdma_resolve_addr(listener, NULL, at(SERVICE), 2000) == -1 && errno == EINVAL);
	CHECK(is_quiet(channel));
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(listener));
}

/* A port is an identifier's from the call that binds it to its destruction. */
static void check_ports(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *first = identifier(channel), *second = identifier(channel);
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(NAMED) };
	int yes = 1;

	CHECK(!rdma_resolve_addr(first, at(NAMED), at(SERVICE), 2000));
	expect(channel, first, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_addr(second, at(NAMED), at(SERVICE), 2000) == -1 && errno == EADDRINUSE);
	CHECK(rdma_bind_addr(second, at(NAMED)) == -1 && errno == EADDRINUSE);
	CHECK(rdma_bind_addr(second, (struct sockaddr *)&any) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)));
	CHECK(rdma_bind_addr(second, at(NAMED)) == -1 && errno == EADDRINUSE);
	CHECK(is_quiet(channel));
	CHECK(!rdma_destroy_id(first));
	CHECK(!rdma_bind_addr(second, at(NAMED)));
	first = identifier(channel);
	CHECK(!rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)));
	CHECK(!rdma_bind_addr(first, at(NAMED)));
	CHECK(!rdma_destroy_id(first) && !rdma_destroy_id(second));

	/* A source without an address names a port. */
	first = identifier(channel);
	any.sin_port = htons(OTHER);
	CHECK(!rdma_resolve_addr(first, (struct sockaddr *)&any, at(SERVICE), 2000));
	expect(channel, first, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_get_src_port(first) == htons(OTHER) && !rdma_destroy_id(first));
}

/* The port that a connection chose. */
static void check_chosen_port(struct rdma_event_channel *channel, struct rdma_event_channel *clients)
{
	struct rdma_cm_id *listener = listening(channel), *client = asking(clients), *id = identifier(clients);

	CHECK(rdma_bind_addr(id, at(ntohs(rdma_get_src_port(client)))) == -1 && errno == EADDRINUSE);
	gone(client);
	CHECK(!rdma_destroy_id(listener) && !rdma_destroy_id(id));
	/* The request may have come, and gone. */
	while (!is_quiet(channel)) {
		struct rdma_cm_event *event = request(channel);
		struct rdma_cm_id *late = event->id;

		CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(late));
	}
}

/* The queue pair was made on another identifier, as dapl does it. */
static void check_moved_queue_pair(struct rdma_event_channel *channel, struct rdma_event_channel *clients)
{
	struct rdma_cm_id *listener = listening(channel), *client = asking(clients), *server, *maker;
	struct rdma_cm_event *event = request(channel);
	struct ibv_qp *of_client;

	server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	maker = resolved(clients, at(SERVICE));
	queue_pair(maker);
	server->qp = maker->qp;
	maker->qp = NULL;
	CHECK(rdma_connect(maker, NULL) == -1 && errno == EINVAL);
	CHECK(!rdma_accept(server, NULL));
	expect(channel, server, RDMA_CM_EVENT_ESTABLISHED);
	expect(clients, client, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(server->qp->state == IBV_QPS_RTS);
	CHECK(!rdma_disconnect(server));
	expect(channel, server, RDMA_CM_EVENT_DISCONNECTED);
	expect(clients, client, RDMA_CM_EVENT_DISCONNECTED);
	gone(server);

	/* And to connect with one. */
	rdma_destroy_qp(client);
	rdma_destroy_qp(maker);
	queue_pair(maker);
	of_client = maker->qp;
	maker->qp = NULL;
	CHECK(!rdma_destroy_id(client));
	client = resolved(clients, at(SERVICE));
	client->qp = of_client;
	CHECK(!rdma_connect(client, NULL));
	event = request(channel);
	server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	queue_pair(server);
	CHECK(!rdma_accept(server, NULL));
	expect(clients, client, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, server, RDMA_CM_EVENT_ESTABLISHED);
	gone(server);
	expect(clients, client, RDMA_CM_EVENT_DISCONNECTED);
	gone(client);
	gone(maker);
	CHECK(!rdma_destroy_id(listener));
}

static void *acknowledge_late(void *event)
{
	usleep(300 * 1000);
	CHECK(!rdma_ack_cm_event(event));
	return NULL;
}

/* When rdma_migrate_id returns, the program has nothing left of the old channel. */
static void check_migration(struct rdma_event_channel *channel, struct rdma_event_channel *other)
{
	struct rdma_cm_id *id = identifier(channel);
	struct rdma_cm_event *event;
	struct timespec before, after;
	pthread_t thread;

	CHECK(!rdma_resolve_addr(id, NULL, at(SERVICE), 2000));
	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(!pthread_create(&thread, NULL, acknowledge_late, event));
	clock_gettime(CLOCK_MONOTONIC, &before);
	CHECK(!rdma_migrate_id(id, other));
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 290);
	CHECK(!pthread_join(thread, NULL) && id->channel == other);
	/* To none, whose calls wait, and back: its own event is not waited for. */
	CHECK(!rdma_migrate_id(id, NULL) && !rdma_resolve_route(id, 2000));
	CHECK(!rdma_migrate_id(id, channel) && is_quiet(channel) && is_quiet(other));
	CHECK(!rdma_destroy_id(id));
}

/* A client that has gone before it is answered. */
static void check_client_gone(struct rdma_event_channel *channel, struct rdma_event_channel *clients)
{
	struct rdma_cm_id *listener = listening(channel), *server;

	for (int rejects = 0; rejects < 2; rejects++) {
		struct rdma_cm_id *client = asking(clients);
		struct rdma_cm_event *event = request(channel);

		server = event->id;
		CHECK(!rdma_ack_cm_event(event));
		queue_pair(server);
		gone(client);
		usleep(300 * 1000);
		CHECK((rejects ? rdma_reject(server, NULL, 0) : rdma_accept(server, NULL)) == -1);
		CHECK(errno == ECONNRESET);
		gone(server);
	}
	CHECK(!rdma_destroy_id(listener));
}

/* Of a listener that goes, requests that were fetched stay. Others are rejected, and nobody else comes. */
static void check_listener_gone(struct rdma_event_channel *channel, struct rdma_event_channel *clients)
{
	struct rdma_cm_id *listener = listening(channel), *first = asking(clients), *second, *third, *server;
	struct rdma_cm_event *event = request(channel);

	server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	second = asking(clients);
	while (is_quiet(channel))
		;
	CHECK(!rdma_destroy_id(listener) && is_quiet(channel));
	expect_refused(clients, second);
	third = asking(clients);
	expect_refused(clients, third);
	queue_pair(server);
	CHECK(!rdma_accept(server, NULL));
	expect(channel, server, RDMA_CM_EVENT_ESTABLISHED);
	expect(clients, first, RDMA_CM_EVENT_ESTABLISHED);
	gone(server);
	expect(clients, first, RDMA_CM_EVENT_DISCONNECTED);
	gone(first);
	gone(second);
	gone(third);
}

/* More than the device has ever is another error than more than it has now. */
static void check_limits(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = resolved(channel, at(SERVICE));
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 1 << 30, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_device_attr device;

	CHECK(!ibv_query_device(id->verbs, &device));
	CHECK((init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0)));
	for (int receives = 0; receives < 2; receives++) {
		init.cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
		*(receives ? &init.cap.max_recv_wr : &init.cap.max_send_wr) = 1 << 30;
		CHECK(!ibv_create_qp(id->pd, &init) && errno == EINVAL);
		CHECK(rdma_create_qp(id, NULL, &init) == -1 && errno == EINVAL);
		*(receives ? &init.cap.max_recv_wr : &init.cap.max_send_wr) = device.max_qp_wr + 1;
		CHECK(!ibv_create_qp(id->pd, &init) && errno == EINVAL);
	}
	CHECK(!ibv_create_srq(id->pd, &shared) && errno == EINVAL);
	init.cap = (struct ibv_qp_cap){ 1, 1, device.max_sge + 1, 1, 0 };
	CHECK(!ibv_create_qp(id->pd, &init) && errno == EINVAL);
	CHECK(!ibv_destroy_cq(init.send_cq) && !rdma_destroy_id(id));
}

int main(int count, char **arguments)
{
	struct rdma_event_channel *servers = rdma_create_event_channel(), *clients = rdma_create_event_channel();

	here.sin_family = AF_INET;
	CHECK(servers && clients && count == 2 && inet_pton(AF_INET, arguments[1], &here.sin_addr) == 1);
	check_second_calls(clients);
	check_ports(clients);
	check_chosen_port(servers, clients);
	check_moved_queue_pair(servers, clients);
	check_migration(clients, servers);
	check_client_gone(servers, clients);
	check_listener_gone(servers, clients);
	check_limits(clients);
	CHECK(is_quiet(servers) && is_quiet(clients));
	rdma_destroy_event_channel(servers);
	rdma_destroy_event_channel(clients);
	return 0;
}
