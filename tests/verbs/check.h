/* For programs that check what the verbs promise. */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(truth)                                                                     \
	do {                                                                             \
		if (!(truth)) {                                                          \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #truth, errno); \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static inline void expect(struct rdma_event_channel *channel, struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != type || event->status)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type && event->id == id && !event->status);
	CHECK(!rdma_ack_cm_event(event));
}

static inline void resolve(struct rdma_event_channel *channel, struct rdma_cm_id *id, struct sockaddr *address)
{
	CHECK(!rdma_resolve_addr(id, NULL, address, 2000));
	expect(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	expect(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static inline struct rdma_cm_id *resolved(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	resolve(channel, id, address);
	return id;
}

typedef void end_of_test(struct rdma_event_channel *channel, struct sockaddr *address);

/* `server ADDRESS` or `client ADDRESS`. */
static inline int run_end(int count, char **arguments, end_of_test *serve, end_of_test *ask)
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
