/* A peer that has said it is an rsocket, and then sends what none sends. Both ends are in this program. Argument: an
   address of this host. */
#include "check.h"
#include <endian.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <rdma/rdma_verbs.h>

enum { TARGETS = 2, MESSAGE = 4, RECEIVES = 4 };

/* Where an rsocket's peer may write. */
struct place {
	uint64_t addr;
	uint32_t key, length;
};

/* What an rsocket says of itself when it connects: version 1, and here no memory that is mapped. */
struct hello {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t unused[4];
	struct place targets, buffer;
};

static struct place places[TARGETS];
static char received[64];

static struct place place_of(struct ibv_mr *mr, uint32_t length)
{
	return (struct place){ htobe64((uintptr_t)mr->addr), htobe32(mr->rkey), htobe32(length) };
}

int main(int count, char **arguments)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = MESSAGE },
	};
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7476) };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct hello hello = { .version = 1, .flags = BYTE_ORDER == BIG_ENDIAN, .credits = htobe16(RECEIVES) };
	struct rdma_conn_param param = { .private_data = &hello, .private_data_len = sizeof(hello) };
	struct pollfd fd = { .fd = rsocket(AF_INET, SOCK_STREAM, 0), .events = POLLIN };
	struct ibv_mr *table, *buffer;
	struct rdma_cm_id *id;
	char byte;

	CHECK(count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	CHECK(!rbind(fd.fd, (struct sockaddr *)&address, sizeof(address)) && !rlisten(fd.fd, 1));
	id = resolved(channel, (struct sockaddr *)&address);
	CHECK(!rdma_create_qp(id, NULL, &init));
	CHECK((table = ibv_reg_mr(id->pd, places, sizeof(places), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK((buffer = ibv_reg_mr(id->pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	hello.targets = place_of(table, TARGETS);
	hello.buffer = place_of(buffer, sizeof(received));
	for (int receives = 0; receives < RECEIVES; receives++)
		CHECK(!rdma_post_recv(id, NULL, received, sizeof(received), buffer));
	CHECK(!rdma_connect(id, &param));
	expect(channel, id, RDMA_CM_EVENT_ESTABLISHED);
	CHECK((fd.fd = raccept(fd.fd, NULL, NULL)) >= 0 && !rpoll(&fd, 1, 100));
	CHECK(!rdma_post_send(id, NULL, "odd", MESSAGE - 1, NULL, IBV_SEND_INLINE));
	/* The program is told, and the connection ends. */
	CHECK(rpoll(&fd, 1, 20000) == 1 && rrecv(fd.fd, &byte, 1, 0) == -1 && errno == EPROTO);
	expect(channel, id, RDMA_CM_EVENT_DISCONNECTED);
	return 0;
}
