/* Two ends whose identifiers have no queue pair of their own: they name one of ibv_create_qp by its number
   (rdma_connect(3), qp_num). Arguments: "server" or "client", and the server's address. */
#include "check.h"

/* Connections, one after the other, of one queue pair of the client's. */
enum { CONNECTIONS = 2, SIZE = 16 };
static char memory[SIZE];

static struct ibv_qp *queue_pair(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = SIZE },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && qp->state == IBV_QPS_RESET && !id->qp);
	return qp;
}

/* What programs do that make such queue pairs: the connection manager says how. */
static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attr, &mask) && !ibv_modify_qp(qp, &attr, mask));
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr made;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &made));
	return attr.qp_state;
}

static void poll_one(struct ibv_cq *cq, struct ibv_qp *qp, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.qp_num == qp->qp_num);
}

/* Posts a Send of a string, and waits until it is done. */
static void say(struct ibv_cq *cq, struct ibv_qp *qp, const char *words)
{
	struct ibv_sge sge = { .addr = (uintptr_t)words, .length = strlen(words) + 1 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE }, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
	poll_one(cq, qp, IBV_WC_SEND);
}

static struct ibv_mr *post_receive(struct ibv_pd *pd, struct ibv_qp *qp)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = SIZE };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(mr);
	sge.lkey = mr->lkey;
	CHECK(!ibv_post_recv(qp, &wr, &bad));
	return mr;
}

static void hear(struct ibv_cq *cq, struct ibv_qp *qp, const char *words)
{
	poll_one(cq, qp, IBV_WC_RECV);
	CHECK(!strcmp(memory, words));
}

static void serve_one(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct rdma_conn_param param = {};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->listen_id == listener);
	id = event->id;
	CHECK(!rdma_ack_cm_event(event));
	CHECK((pd = ibv_alloc_pd(id->verbs)) && (cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0)));
	qp = queue_pair(id, pd, cq);
	move(id, qp, IBV_QPS_INIT);
	move(id, qp, IBV_QPS_RTR);
	mr = post_receive(pd, qp);
	/* The request waits for an answer that names a queue pair. */
	CHECK(rdma_accept(id, &param) == -1 && errno == EINVAL);
	param.qp_num = qp->qp_num;
	CHECK(!rdma_accept(id, &param));
	expect(channel, id, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!id->qp && qp->state == IBV_QPS_RTS && state_of(qp) == IBV_QPS_RTS);
	hear(cq, qp, "by number");
	/* Only now may the peer end the connection: its state has been seen. */
	say(cq, qp, "seen");
	expect(channel, id, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(state_of(qp) == IBV_QPS_ERR);
	CHECK(!rdma_disconnect(id));
	CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	CHECK(!rdma_destroy_id(id));
}

static void serve(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *listener;

	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address) && !rdma_listen(listener, 4));
	for (int connection = 0; connection < CONNECTIONS; connection++)
		serve_one(channel, listener);
	CHECK(!rdma_destroy_id(listener));
}

static void refuses(struct rdma_cm_id *id, uint32_t number)
{
	struct rdma_conn_param param = { .qp_num = number };

	CHECK(rdma_connect(id, &param) == -1 && errno == EINVAL);
}

static void ask(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *id = resolved(channel, address), *other;
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct rdma_conn_param param = {};
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	CHECK((pd = ibv_alloc_pd(id->verbs)) && (cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0)));
	qp = queue_pair(id, pd, cq);
	refuses(id, 0);
	refuses(id, qp->qp_num + 1);
	for (int connection = 1;; connection++) {
		move(id, qp, IBV_QPS_INIT);
		CHECK(state_of(qp) == IBV_QPS_INIT);
		mr = post_receive(pd, qp);
		param.qp_num = qp->qp_num;
		CHECK(!rdma_connect(id, &param));
		expect(channel, id, RDMA_CM_EVENT_ESTABLISHED);
		CHECK(!id->qp && qp->state == IBV_QPS_RTS && state_of(qp) == IBV_QPS_RTS);
		move(id, qp, IBV_QPS_RTS);
		/* It has one connection at a time, and who comes second does not take its events. */
		other = resolved(channel, address);
		refuses(other, qp->qp_num);
		say(cq, qp, "by number");
		hear(cq, qp, "seen");
		CHECK(!rdma_disconnect(id));
		expect(channel, id, RDMA_CM_EVENT_DISCONNECTED);
		CHECK(qp->state == IBV_QPS_ERR && state_of(qp) == IBV_QPS_ERR);
		refuses(other, qp->qp_num);
		/* As it was made, it is the next identifier's. */
		CHECK(!ibv_modify_qp(qp, &reset, IBV_QP_STATE) && !ibv_dereg_mr(mr));
		CHECK(!rdma_destroy_id(id));
		id = other;
		if (connection == CONNECTIONS)
			break;
	}
	CHECK(!ibv_destroy_qp(qp));
	refuses(id, param.qp_num);
	CHECK(!rdma_destroy_id(id) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

int main(int count, char **arguments)
{
	return run_end(count, arguments, serve, ask);
}
