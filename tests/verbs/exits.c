/* Connects to itself and ends with all it has: nothing is destroyed, no event is acknowledged. Arguments: an address
   of this host, and how it ends: return, _exit or kill. */
#include "check.h"

#include <signal.h>
#include <unistd.h>

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

int main(int count, char **arguments)
{
	struct rdma_event_channel *servers = rdma_create_event_channel(), *clients = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_cm_event *event;

	CHECK(servers && clients && count == 3 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	CHECK(!rdma_create_id(servers, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 1));
	client = resolved(clients, rdma_get_local_addr(listener));
	queue_pair(client);
	CHECK(!rdma_connect(client, NULL));
	CHECK(!rdma_get_cm_event(servers, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	queue_pair(server);
	CHECK(!rdma_accept(server, NULL));
	CHECK(ibv_reg_mr(client->pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE));
	CHECK(!rdma_get_cm_event(servers, &event) && event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_get_cm_event(clients, &event) && event->event == RDMA_CM_EVENT_ESTABLISHED);
	if (!strcmp(arguments[2], "_exit"))
		_exit(0);
	if (!strcmp(arguments[2], "kill"))
		kill(getpid(), SIGKILL);
	return 0;
}
