/* What the ways to use siw-verbs share: connections with their queues, by librdmacm and libibverbs,
 * and the pattern. Functions that can fail return 0, or -1 with a sentence in `problem`; every wait
 * has an end. */
#ifndef VERBS_H
#define VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdint.h>

/* How long any one step may take, in milliseconds: a machine that emulates may be busy. */
#define PATIENCE 50000

/* What went wrong last in this thread. */
extern __thread char problem[200];
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A connection, or what becomes one. */
struct end {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *notices;
	struct ibv_cq *cq;
};

/* Registered memory. */
struct memory {
	char *bytes;
	size_t length;
	struct ibv_mr *mr;
};

/* What one end tells of itself when it connects. */
struct terms {
	/* Inbound and outbound RDMA Reads at a time. */
	uint8_t ird, ord;
	uint8_t length;
	uint8_t private_data[255];
};

/* A protection domain of the first RDMA device. */
struct ibv_pd *domain(void);

int listen_at(struct end *listener, const char *address, const char *port);
/* The next connection request of a listener, as an end of its own. */
int take_request(struct end *listener, struct end *end, struct terms *asked);
int resolve(struct end *end, const char *address, const char *port);
/* One completion queue for both work queues; all work is signalled. */
int make_queues(struct end *end, struct ibv_pd *pd, unsigned sends, unsigned receives);
int accept_with(struct end *end, const struct terms *terms);
/* Fails when the peer does not take the connection; `answer` then has what it said. */
int connect_with(struct end *end, const struct terms *terms, struct terms *answer);
/* The next event; acknowledged, and with its private data in `terms`, if that is given. */
int next_event(struct end *end, enum rdma_cm_event_type *type, int *status, struct terms *terms);
/* The next completion: 1, or 0 when none came in time. */
int next_completion(struct end *end, int milliseconds, struct ibv_wc *done);
void destroy(struct end *end);

int make_memory(struct memory *memory, struct ibv_pd *pd, size_t length, int access);
void drop_memory(struct memory *memory);
int post_receive(struct end *end, uint64_t id, const struct memory *to, size_t at, size_t length);
/* Posts to the send queue; rkey and remote address are for Writes and Reads. */
int post_send(struct end *end, uint64_t id, enum ibv_wr_opcode opcode, unsigned flags,
	      const struct memory *memory, size_t at, size_t length, uint32_t rkey, uint64_t remote);

/* The bytes of a seed from a position on, as tools/src/pattern.rs has them. */
void pattern_fill(uint64_t seed, uint64_t position, char *bytes, size_t length);
/* The first place that differs from the pattern, or -1. */
int64_t pattern_differs(uint64_t seed, uint64_t position, const char *bytes, size_t length);

/* The ways to use it. */
int serve_control(const char *port);
int serve_perf(const char *address, const char *port);
int run_perf(char **arguments);

#endif
