/* A Send for which no receive is posted ends the connection, and the log of the program says why. An RDMA Write to
   memory that the peer has not ends it too. Both ends are in this program. Argument: an address of this host. */
#include "check.h"

static struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = 0 };
static char bytes[8];

static void queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	CHECK(!rdma_create_qp(id, NULL, &init));
}

static void ends_by(enum ibv_wr_opcode opcode, struct rdma_event_channel *servers, struct rdma_event_channel *clients)
{
	struct rdma_cm_id *listener, *client, *server;
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .length = sizeof(bytes) };
	struct ibv_send_wr wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct rdma_cm_event *event;
	struct ibv_mr *mr;

	CHECK(!rdma_create_id(servers, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 1));
	client = resolved(clients, rdma_get_local_addr(listener));
	queue_pair(client);
	CHECK(!rdma_connect(client, NULL));
	CHECK(!rdma_get_cm_event(servers, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(!rdma_ack_cm_event(event));
	queue_pair(server);
	CHECK(!rdma_accept(server, NULL));
	expect(servers, server, RDMA_CM_EVENT_ESTABLISHED);
	expect(clients, client, RDMA_CM_EVENT_ESTABLISHED);
	CHECK((mr = ibv_reg_mr(client->pd, bytes, sizeof(bytes), 0)));
	sge.lkey = mr->lkey;
	CHECK(!ibv_post_send(client->qp, &wr, &bad));
	expect(servers, server, RDMA_CM_EVENT_DISCONNECTED);
	expect(clients, client, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(!ibv_dereg_mr(mr) && !rdma_destroy_id(client) && !rdma_destroy_id(server));
	CHECK(!rdma_destroy_id(listener));
}

int main(int count, char **arguments)
{
	struct rdma_event_channel *servers = rdma_create_event_channel(), *clients = rdma_create_event_channel();

	CHECK(servers && clients && count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	ends_by(IBV_WR_SEND, servers, clients);
	ends_by(IBV_WR_RDMA_WRITE, servers, clients);
	rdma_destroy_event_channel(servers);
	rdma_destroy_event_channel(clients);
	return 0;
}
