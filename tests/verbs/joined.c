/* Two programs that join queue pairs by number, as InfiniBand's, and check what is promised of these: when work
   completes, immediate data with payload, which work request an error names, what a query tells, a second join of
   the same queue pairs, and a peer that goes away. Arguments: "a" or "b", the path of a socket by which both
   tell each other what programs do tell each other without RDMA, and how many messages are checked. */
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 65536, DEPTH = 16, SILENT = 500, AT_LAST = 30000 };
static const int ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
static const uint32_t IMMEDIATE = 0x12345678;
static char memory[SIZE] __attribute__((aligned(4096)));

struct end {
	union ibv_gid gid;
	uint32_t number, psn, rkey;
	uint64_t addr;
};

static int is_a, peer, rounds;
static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;

static void say(const void *bytes, size_t len)
{
	CHECK(write(peer, bytes, len) == (ssize_t)len);
}

static void hear(void *bytes, size_t len)
{
	struct pollfd readable = { .fd = peer, .events = POLLIN };

	CHECK(poll(&readable, 1, AT_LAST) == 1 && recv(peer, bytes, len, MSG_WAITALL) == (ssize_t)len);
}

/* Both are here. */
static void meet(void)
{
	char here = 1;

	say(&here, 1);
	hear(&here, 1);
}

static void meet_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	if (!is_a) {
		CHECK(!bind(listener, (struct sockaddr *)&address, sizeof(address)) && !listen(listener, 1));
		CHECK((peer = accept(listener, NULL, NULL)) >= 0);
		return;
	}
	peer = listener;
	for (int tries = 0; connect(peer, (struct sockaddr *)&address, sizeof(address)); tries++) {
		CHECK(tries < AT_LAST / 10);
		usleep(10000);
	}
}

static struct ibv_qp *queue_pair(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp;

	CHECK((qp = ibv_create_qp(pd, &init)));
	return qp;
}

static void check_query(struct ibv_qp *qp, const struct end *other, uint32_t psn)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, -1, &init) && attr.qp_state == IBV_QPS_RTS);
	CHECK(attr.dest_qp_num == other->number && attr.rq_psn == other->psn && attr.sq_psn == psn);
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &other->gid, sizeof(other->gid)) && attr.ah_attr.is_global);
	CHECK(attr.path_mtu == IBV_MTU_1024 && attr.timeout == 14 && attr.retry_cnt == 6 && attr.rnr_retry == 7);
	CHECK(attr.min_rnr_timer == 12 && attr.max_rd_atomic == 3 && attr.max_dest_rd_atomic == 4);
	CHECK(attr.qp_access_flags == (unsigned)ACCESS);
}

/* Joins it to the peer's, whoever comes first. */
static struct end join(struct ibv_qp *qp)
{
	struct end own = { .number = qp->qp_num, .psn = 100 + is_a, .rkey = mr->rkey, .addr = (uintptr_t)memory };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	struct end other;

	CHECK(!ibv_query_gid(device, 1, 0, &own.gid));
	say(&own, sizeof(own));
	hear(&other, sizeof(other));
	CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));

	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other.number, .rq_psn = other.psn,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = other.gid, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = own.psn, .timeout = 14, .retry_cnt = 6, .rnr_retry = 7,
		.max_rd_atomic = 3,
	};
	CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	check_query(qp, &other, own.psn);
	return other;
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void completes(uint64_t wr_id, enum ibv_wc_status status)
{
	long end = now() + AT_LAST;
	struct ibv_wc wc;
	int found;

	while (!(found = ibv_poll_cq(cq, 1, &wc)))
		CHECK(now() < end);
	if (wc.wr_id != wr_id || wc.status != status)
		fprintf(stderr, "work %lu: status %d, not %lu: %d\n", wc.wr_id, wc.status, wr_id, status);
	CHECK(found == 1 && wc.wr_id == wr_id && wc.status == status);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t len, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = len, .lkey = mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .imm_data = htonl(IMMEDIATE),
		.wr.rdma = { .remote_addr = to, .rkey = rkey },
	}, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void receive(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* The peer has an RDMA Write's bytes when it has completed, though nothing of RDMA says so. */
static void completion_means_remote(struct ibv_qp *qp, const struct end *other)
{
	for (int round = 1; round <= rounds; round++) {
		uint32_t len = 1 + (uint32_t)round * 7919 % SIZE;

		if (is_a) {
			memset(memory, round, len);
			post(qp, IBV_WR_RDMA_WRITE, round, len, other->addr, other->rkey);
			completes(round, IBV_WC_SUCCESS);
			say(&len, sizeof(len));
			hear(&len, sizeof(len));
		} else {
			hear(&len, sizeof(len));
			for (uint32_t at = 0; at < len; at++)
				CHECK(memory[at] == (char)round);
			say(&len, sizeof(len));
		}
	}
}

static void immediate_data_has_payload(struct ibv_qp *qp)
{
	struct ibv_wc wc;

	if (!is_a) {
		memset(memory, 0, SIZE);
		receive(qp, 7);
	}
	meet();
	if (is_a) {
		memset(memory, 77, 3000);
		post(qp, IBV_WR_SEND_WITH_IMM, 6, 3000, 0, 0);
		completes(6, IBV_WC_SUCCESS);
	} else {
		while (!ibv_poll_cq(cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 3000);
		CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == htonl(IMMEDIATE) && memory[2999] == 77);
	}
	meet();
}

/* A Send without a receive waits for one. */
static void a_send_waits(struct ibv_qp *qp)
{
	if (is_a)
		post(qp, IBV_WR_SEND, 8, 10, 0, 0);
	else {
		usleep(SILENT * 1000);
		receive(qp, 9);
	}
	completes(is_a ? 8 : 9, IBV_WC_SUCCESS);
	meet();
}

static void the_refused_is_named(struct ibv_qp *qp, const struct end *other)
{
	if (is_a) {
		post(qp, IBV_WR_RDMA_WRITE, 1, 8, other->addr, other->rkey);
		post(qp, IBV_WR_RDMA_WRITE, 2, 8, other->addr, other->rkey ^ 0xff);
		post(qp, IBV_WR_RDMA_WRITE, 3, 8, other->addr, other->rkey);
		completes(1, IBV_WC_SUCCESS);
		completes(2, IBV_WC_REM_ACCESS_ERR);
		completes(3, IBV_WC_WR_FLUSH_ERR);
	}
	meet();
}

static void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	meet();
}

static void the_peer_goes_away(struct ibv_qp *qp, const struct end *other)
{
	struct ibv_wc wc;

	receive(qp, 1);
	meet();
	if (!is_a)
		raise(SIGKILL);
	usleep(SILENT * 1000);
	CHECK(!ibv_poll_cq(cq, 1, &wc));
	receive(qp, 2);
	CHECK(!ibv_poll_cq(cq, 1, &wc));
	post(qp, IBV_WR_RDMA_WRITE, 3, 8, other->addr, other->rkey);
	completes(3, IBV_WC_RETRY_EXC_ERR);
	completes(1, IBV_WC_WR_FLUSH_ERR);
	completes(2, IBV_WC_WR_FLUSH_ERR);
}

int main(int count, char **arguments)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_qp *qp;
	struct end other;

	CHECK(count == 4 && devices && devices[0]);
	is_a = !strcmp(arguments[1], "a");
	rounds = atoi(arguments[3]);
	CHECK((device = ibv_open_device(devices[0])) && (pd = ibv_alloc_pd(device)));
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE, ACCESS)) && (cq = ibv_create_cq(device, 4 * DEPTH, NULL, NULL, 0)));
	ibv_free_device_list(devices);
	meet_at(arguments[2]);
	qp = queue_pair();
	other = join(qp);
	completion_means_remote(qp, &other);
	immediate_data_has_payload(qp);
	a_send_waits(qp);
	the_refused_is_named(qp, &other);
	reset(qp);
	other = join(qp);
	completion_means_remote(qp, &other);
	the_peer_goes_away(qp, &other);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(device));
	return 0;
}
