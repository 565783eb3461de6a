/* ibv_resize_cq(3): a completion queue grows while it is used, and nothing is lost or overtaken. Arguments:
   "server" or "client", and the server's address. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SMALL = 16, DEPTH = 100, MANY = 30000, LARGE = 4096 };
static char memory[4096] __attribute__((aligned(4096)));

struct end {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	uint64_t addr;
	uint32_t rkey;
};

static void prepare(struct end *end, struct rdma_cm_id *id, struct ibv_comp_channel *channel)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	end->id = id;
	CHECK((end->cq = ibv_create_cq(id->verbs, SMALL, NULL, channel, 0)) && end->cq->cqe == SMALL);
	CHECK((end->mr = ibv_reg_mr(id->pd, memory, sizeof(memory),
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	end->sge = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 8, .lkey = end->mr->lkey };
	init.send_cq = init.recv_cq = end->cq;
	CHECK(!rdma_create_qp(id, id->pd, &init));
}

static void finish(struct end *end)
{
	rdma_destroy_qp(end->id);
	CHECK(!ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq) && !rdma_destroy_id(end->id));
}

static int post(struct end *end, uint64_t wr_id)
{
	struct ibv_send_wr write = {
		.wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &end->sge, .num_sge = 1, .wr.rdma = { .remote_addr = end->addr, .rkey = end->rkey },
	}, *bad;

	return ibv_post_send(end->id->qp, &write, &bad);
}

static void done(struct end *end, uint64_t wr_id)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(end->cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

/* More completions than the old ring had room for, some of them from before, and an event that was asked for
   before. */
static void check_growth(struct end *end, struct ibv_comp_channel *channel)
{
	struct ibv_cq *told;
	void *context;

	CHECK(ibv_resize_cq(end->cq, 0) == EINVAL);
	CHECK(ibv_resize_cq(end->cq, 1 << 30) == EINVAL && end->cq->cqe == SMALL);
	CHECK(!ibv_resize_cq(end->cq, 1) && end->cq->cqe == SMALL);
	for (int wr = 0; wr < 3; wr++)
		CHECK(!post(end, wr));
	usleep(200000);
	CHECK(!ibv_req_notify_cq(end->cq, 0));
	CHECK(!ibv_resize_cq(end->cq, DEPTH) && end->cq->cqe >= DEPTH);
	for (int wr = 3; wr < DEPTH; wr++)
		CHECK(!post(end, wr));
	CHECK(!ibv_get_cq_event(channel, &told, &context) && told == end->cq);
	ibv_ack_cq_events(told, 1);
	for (int wr = 0; wr < DEPTH; wr++)
		done(end, wr);
}

static atomic_int polled;

static void *poll_all(void *end)
{
	for (int wr = 0; wr < MANY; wr++) {
		done(end, wr);
		atomic_store(&polled, wr + 1);
	}
	return NULL;
}

static void check_growth_at_work(struct end *end)
{
	pthread_t thread;
	int depth = end->cq->cqe;

	CHECK(!pthread_create(&thread, NULL, poll_all, end));
	for (int wr = 0; wr < MANY; wr++) {
		while (wr - atomic_load(&polled) >= DEPTH / 2)
			;
		CHECK(!post(end, wr));
		if (wr % 2000 == 1999 && depth < LARGE) {
			CHECK(!ibv_resize_cq(end->cq, depth + 1) && end->cq->cqe == 2 * depth);
			depth *= 2;
		}
	}
	CHECK(!pthread_join(thread, NULL) && depth == LARGE);
}

static void serve(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_conn_param param = {};
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	struct end end;

	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address) && !rdma_listen(listener, 4));
	CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	prepare(&end, event->id, NULL);
	CHECK(!rdma_ack_cm_event(event));
	end.addr = (uintptr_t)memory;
	end.rkey = end.mr->rkey;
	param.private_data = &end;
	param.private_data_len = sizeof(end);
	CHECK(!rdma_accept(end.id, &param));
	expect(channel, end.id, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, end.id, RDMA_CM_EVENT_DISCONNECTED);
	finish(&end);
	CHECK(!rdma_destroy_id(listener));
}

static void ask(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *id = resolved(channel, address);
	struct ibv_comp_channel *completions = ibv_create_comp_channel(id->verbs);
	struct rdma_cm_event *event;
	struct end end, peer;

	CHECK(completions);
	prepare(&end, id, completions);
	CHECK(!rdma_connect(id, NULL) && !rdma_get_cm_event(channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_ESTABLISHED && event->param.conn.private_data_len >= sizeof(peer));
	memcpy(&peer, event->param.conn.private_data, sizeof(peer));
	CHECK(!rdma_ack_cm_event(event));
	end.addr = peer.addr;
	end.rkey = peer.rkey;
	check_growth(&end, completions);
	check_growth_at_work(&end);
	CHECK(!rdma_disconnect(id));
	expect(channel, id, RDMA_CM_EVENT_DISCONNECTED);
	finish(&end);
	CHECK(!ibv_destroy_comp_channel(completions));
}

int main(int count, char **arguments)
{
	return run_end(count, arguments, serve, ask);
}
