/* Two ends of a connection, built with the headers' inline functions, that check what the verbs promise and
   how what is not there fails. Arguments: "server" or "client", and the server's address. "unread" is a
   server that looks at its requests only when it gets SIGUSR1, and rejects one whose peer is still there. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { SIZE = 4096, RECEIVES = 4, BACKLOG = 4, WRITTEN = 1000, GIDS = 64 };
static const uint32_t IMMEDIATE = 0x12345678;
static char memory[SIZE] __attribute__((aligned(4096)));

struct place {
	uint64_t addr;
	uint32_t rkey;
};

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	CHECK(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static struct rdma_cm_id *endpoint_at(const char *address, const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1,
			 .max_inline_data = 64 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo(address, port, &hints, &found));
	CHECK(!rdma_create_ep(&id, found, NULL, &attr));
	rdma_freeaddrinfo(found);
	return id;
}

static struct rdma_cm_id *endpoint(const char *address, int flags)
{
	return endpoint_at(address, "7471", flags);
}

static struct ibv_mr *region(struct rdma_cm_id *id)
{
	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, SIZE,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	return mr;
}

static void *wait_for_request(void *listener)
{
	struct rdma_cm_id *id;

	rdma_get_request(listener, &id);
	return NULL;
}

/* A thread that waits can be cancelled (pthread_cancel(3)). */
static void check_cancel(struct rdma_cm_id *listener)
{
	struct timespec until;
	pthread_t waiter;
	void *result;

	CHECK(!pthread_create(&waiter, NULL, wait_for_request, listener));
	CHECK(!pthread_cancel(waiter));
	CHECK(!clock_gettime(CLOCK_REALTIME, &until));
	until.tv_sec += 10;
	CHECK(!pthread_timedjoin_np(waiter, &result, &until) && result == PTHREAD_CANCELED);
}

static void *connect_silently(void *id)
{
	rdma_connect(id, NULL);
	return NULL;
}

/* So can one that connects to a peer that does not answer, and the identifier goes. */
static void check_cancelled_connect(const char *address)
{
	struct rdma_cm_id *id = endpoint_at(address, "7473", 0);
	struct timespec until, soon = { .tv_nsec = 200000000 };
	pthread_t waiter;
	void *result;

	CHECK(!pthread_create(&waiter, NULL, connect_silently, id));
	nanosleep(&soon, NULL);
	CHECK(!pthread_cancel(waiter));
	CHECK(!clock_gettime(CLOCK_REALTIME, &until));
	until.tv_sec += 10;
	CHECK(!pthread_timedjoin_np(waiter, &result, &until) && result == PTHREAD_CANCELED);
	rdma_destroy_ep(id);
}

/* A cancellation that comes before a call that is no place for it waits until after it. */
static void *list_when_cancelled(void *unused)
{
	struct ibv_device **all;
	int count = 0;

	CHECK(!pthread_cancel(pthread_self()));
	all = ibv_get_device_list(&count);
	CHECK(all && count > 0);
	ibv_free_device_list(all);
	pthread_testcancel();
	return unused;
}

static void check_cancelled_before(void)
{
	pthread_t lists;
	void *result;

	CHECK(!pthread_create(&lists, NULL, list_when_cancelled, NULL));
	CHECK(!pthread_join(lists, &result) && result == PTHREAD_CANCELED);
}

static void serve(const char *address)
{
	struct rdma_cm_id *listener = endpoint(address, RAI_PASSIVE), *id;
	struct rdma_cm_id *silent = endpoint_at(address, "7473", RAI_PASSIVE);
	struct ibv_wc wc;
	struct ibv_mr *mr;
	struct place place;

	/* Its peers get no answer. */
	CHECK(!rdma_listen(silent, 1));
	CHECK(!rdma_listen(listener, 1));
	CHECK(!rdma_get_request(listener, &id));
	mr = region(id);
	for (long receive = 0; receive < RECEIVES; receive++)
		CHECK(!rdma_post_recv(id, (void *)receive, memory + 2048, 256, mr));
	CHECK(!rdma_accept(id, NULL));
	place = (struct place){ .addr = (uintptr_t)memory, .rkey = mr->rkey };
	CHECK(!rdma_post_send(id, NULL, &place, sizeof(place), NULL, IBV_SEND_INLINE));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);

	/* An RDMA Write with immediate data. */
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == WRITTEN);
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == IMMEDIATE);
	CHECK(memory[0] == 'w' && memory[WRITTEN - 1] == 'w' && memory[WRITTEN] == 0);
	/* Immediate data alone. */
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 0 && wc.wr_id == 1);
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == IMMEDIATE);
	/* Inline data of two elements. */
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 6 && wc.wc_flags == 0);
	CHECK(!memcmp(memory + 2048, "inline", 6));
	/* A Send with Invalidate. */
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK((wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == mr->rkey);

	CHECK(!rdma_disconnect(id));
	CHECK(!ibv_dereg_mr(mr));
	rdma_destroy_ep(id);
	check_cancel(listener);
	check_cancelled_before();
	rdma_destroy_ep(silent);
	rdma_destroy_ep(listener);
}

static void post(struct rdma_cm_id *id, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc;

	CHECK(!ibv_post_send(id->qp, wr, &bad));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void fails(struct rdma_cm_id *id, struct ibv_send_wr *wr, int error)
{
	struct ibv_send_wr *bad = NULL;

	CHECK(ibv_post_send(id->qp, wr, &bad) == error && bad == wr);
}

/* What the RNIC does not have. */
static void check_absent(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp_init_attr init = {
		.send_cq = id->send_cq, .recv_cq = id->recv_cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	struct ibv_srq_init_attr_ex shared = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp *qp;

	CHECK(!ibv_create_qp(id->pd, &init) && errno == EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	CHECK((qp = ibv_create_qp(id->pd, &init)));
	/* As drivers of iWARP have it. */
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_INIT);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	/* A mask says whether the protection domain is there. */
	memset(&shared.pd, 0xff, sizeof(shared.pd));
	CHECK(!ibv_create_srq_ex(id->verbs, &shared) && errno == EINVAL);
	shared.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	shared.srq_type = IBV_SRQT_XRC;
	shared.pd = id->pd;
	CHECK(!ibv_create_srq_ex(id->verbs, &shared) && errno == EOPNOTSUPP);
	CHECK(!ibv_qp_to_qp_ex(qp));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_reg_mr(id->pd, memory, SIZE, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr(id->pd, memory, SIZE, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(ibv_attach_mcast(id->qp, NULL, 0) == EOPNOTSUPP);
}

/* A failure is an error's number also where the log can't be written. */
static void check_without_log(struct rdma_cm_id *id)
{
	int error = dup(2), full = open("/dev/full", O_WRONLY), failed;

	CHECK(error >= 0 && full >= 0 && dup2(full, 2) == 2);
	failed = ibv_attach_mcast(id->qp, NULL, 0) == EOPNOTSUPP;
	CHECK(dup2(error, 2) == 2 && failed);
	close(error);
	close(full);
}

/* A region that is registered anew is the same object, with other keys. */
static void check_rereg(struct rdma_cm_id *id, struct place place)
{
	int access = IBV_ACCESS_LOCAL_WRITE;
	static char other[SIZE] __attribute__((aligned(4096)));
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_mr *mr = ibv_reg_mr(pd, other, SIZE, access);
	struct ibv_sge sge = { .addr = (uintptr_t)other, .length = 8 };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = place.addr, .rkey = place.rkey },
	};
	uint32_t before;

	CHECK(pd && mr);
	before = mr->lkey;
	CHECK(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	/* What fails leaves it as it was. */
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND) ==
		      IBV_REREG_MR_ERR_INPUT && errno == EOPNOTSUPP);
	CHECK(mr->lkey == before && mr->pd == pd && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access | IBV_ACCESS_REMOTE_READ));
	CHECK(mr->addr == other && mr->length == SIZE && mr->lkey == mr->rkey && mr->lkey != before);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other + 1, 100, 0));
	CHECK(mr->addr == other + 1 && mr->length == 100 && mr->pd == pd);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, id->pd, other, SIZE, 0));
	CHECK(mr->pd == id->pd && !ibv_dealloc_pd(pd));
	/* The queue pairs of its domain now use it. */
	sge.lkey = mr->lkey;
	post(id, &wr);
	CHECK(!ibv_dereg_mr(mr));
}

/* What is still used. */
static void check_used(struct rdma_cm_id *id)
{
	CHECK(ibv_dealloc_pd(id->pd) == EBUSY);
	CHECK(ibv_destroy_cq(id->send_cq) == EBUSY);
	CHECK(ibv_destroy_comp_channel(id->send_cq_channel) == EBUSY);
	CHECK(ibv_close_device(id->verbs) == -1 && errno == EBUSY);
}

/* A shared receive queue that is used stays the identifier's. */
static void check_used_srq(struct rdma_cm_id *id)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.send_cq = id->send_cq, .recv_cq = id->recv_cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	struct ibv_qp *qp;

	CHECK(!rdma_create_srq(id, id->pd, &shared));
	init.srq = id->srq;
	CHECK((qp = ibv_create_qp(id->pd, &init)));
	rdma_destroy_srq(id);
	CHECK(id->srq == init.srq);
	CHECK(!ibv_destroy_qp(qp));
	rdma_destroy_srq(id);
	CHECK(!id->srq);
}

static void check_attributes(struct rdma_cm_id *id)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr none = {};
	struct ibv_qp_init_attr made;
	struct ibv_device_attr_ex device;
	struct ibv_port_attr port;
	struct ibv_qp_attr attr;
	struct ibv_gid_entry gids[GIDS];
	char name[IF_NAMESIZE];
	uint8_t timeout = 14;
	struct ibv_cq_ex *cq;

	CHECK(id->verbs->device->transport_type == IBV_TRANSPORT_IWARP);
	CHECK(!ibv_query_device_ex(id->verbs, NULL, &device) && device.orig_attr.max_sge > 1);
	CHECK(device.orig_attr.vendor_id);
	CHECK(!ibv_query_port(id->verbs, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(ibv_query_port(id->verbs, 2, &port) == EINVAL);
	CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &made));
	CHECK(attr.qp_state == IBV_QPS_RTS && made.cap.max_inline_data == 64);
	CHECK(attr.max_rd_atomic > 0 && attr.max_dest_rd_atomic > 0);
	CHECK(attr.path_mtu == port.active_mtu);
	CHECK(attr.qp_access_flags & IBV_ACCESS_REMOTE_READ);
	CHECK(!ibv_modify_qp(id->qp, &attr, IBV_QP_MIN_RNR_TIMER));
	CHECK(ibv_modify_qp(id->qp, &attr, IBV_QP_CAP) == EOPNOTSUPP);
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &timeout, sizeof(timeout)) == -1 && errno == ENOSYS);
	CHECK((cq = ibv_create_cq_ex(id->verbs, &init)));
	CHECK(ibv_start_poll(cq, &none) == ENOENT);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	init.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	CHECK(!ibv_create_cq_ex(id->verbs, &init) && errno == EOPNOTSUPP);
	CHECK(!ibv_create_cq(id->verbs, device.orig_attr.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(id->verbs, 1, NULL, NULL, id->verbs->num_comp_vectors) && errno == EINVAL);
	CHECK(!ibv_create_cq(id->verbs, 1, NULL, NULL, -1) && errno == EINVAL);
	CHECK(ibv_query_gid_table(id->verbs, gids, GIDS, 0) == port.gid_tbl_len);
	CHECK(if_indextoname(gids[0].ndev_ifindex, name) && !strcmp(id->verbs->device->name + strlen("rnic_"), name));
	CHECK(!ibv_query_gid_ex(id->verbs, 1, 1, &gids[1], 0) && gids[1].ndev_ifindex == gids[0].ndev_ifindex);
	CHECK(ibv_query_gid_table(id->verbs, gids, port.gid_tbl_len - 1, 0) == -EINVAL);
}

static void *destroy_srq(void *srq)
{
	CHECK(!ibv_destroy_srq(srq));
	return NULL;
}

/* Destruction waits until an event that was taken is acknowledged. */
static void check_events(struct rdma_cm_id *id)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_async_event event;
	struct timespec until;
	struct ibv_srq *srq;
	pthread_t destroyer;

	CHECK((srq = ibv_create_srq(id->pd, &init)) && srq->pd == id->pd && srq->context == id->verbs);
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	CHECK(!ibv_get_async_event(id->verbs, &event));
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	CHECK(!pthread_create(&destroyer, NULL, destroy_srq, srq));
	CHECK(!clock_gettime(CLOCK_REALTIME, &until));
	until.tv_sec++;
	CHECK(pthread_timedjoin_np(destroyer, NULL, &until) == ETIMEDOUT);
	ibv_ack_async_event(&event);
	CHECK(!pthread_join(destroyer, NULL));
}

/* Programs of old headers call the exported function, with a struct of 48 bytes. */
static void check_old_port(struct rdma_cm_id *id)
{
	unsigned char port[64];

	memset(port, 0xa5, sizeof(port));
	CHECK(!(ibv_query_port)(id->verbs, 1, (struct _compat_ibv_port_attr *)port));
	CHECK(((struct ibv_port_attr *)port)->link_layer == IBV_LINK_LAYER_ETHERNET);
	for (size_t at = 48; at < sizeof(port); at++)
		CHECK(port[at] == 0xa5);
}

/* A failed connect is the end of the connection, and there is nothing to disconnect. */
static void check_refused(const char *address)
{
	struct rdma_cm_id *id = endpoint_at(address, "7472", 0);

	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(rdma_disconnect(id) == -1 && errno == EINVAL);
	rdma_destroy_ep(id);
}

/* An endpoint whose second completion queue can't be made leaves nothing behind. */
static void check_failed_endpoint(const char *address)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = 8, .max_recv_wr = 1 << 30 } };
	struct rdma_cm_id *id;
	int before = descriptors();

	CHECK(!rdma_getaddrinfo(address, "7471", &hints, &found));
	for (int times = 0; times < 4; times++)
		CHECK(rdma_create_ep(&id, found, NULL, &attr) == -1);
	rdma_freeaddrinfo(found);
	CHECK(descriptors() == before);
}

static void ask(const char *address)
{
	struct rdma_cm_id *id = endpoint(address, 0);
	struct ibv_mr *mr = region(id);
	struct ibv_sge all = { .addr = (uintptr_t)memory, .length = WRITTEN, .lkey = mr->lkey };
	struct ibv_sge words[2] = { { .addr = (uintptr_t)"inl", .length = 3 },
				    { .addr = (uintptr_t)"ine", .length = 3 } };
	struct ibv_send_wr wr = { .sg_list = &all, .num_sge = 1 };
	struct place place;
	struct ibv_wc wc;

	CHECK(!rdma_post_recv(id, NULL, memory + 2048, sizeof(place), mr));
	CHECK(!rdma_connect(id, NULL));
	CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.byte_len == sizeof(place));
	memcpy(&place, memory + 2048, sizeof(place));
	check_absent(id);
	check_without_log(id);
	check_rereg(id, place);
	check_used(id);
	check_used_srq(id);
	check_attributes(id);
	check_old_port(id);
	check_events(id);
	check_refused(address);
	check_cancelled_connect(address);
	check_failed_endpoint(address);

	memset(memory, 'w', WRITTEN);
	wr.imm_data = htonl(IMMEDIATE);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	fails(id, &wr, EOPNOTSUPP);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.wr.rdma.remote_addr = place.addr;
	wr.wr.rdma.rkey = place.rkey;
	wr.send_flags = 1 << 16;
	fails(id, &wr, EOPNOTSUPP);
	wr.send_flags = IBV_SEND_FENCE;
	post(id, &wr);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.send_flags = IBV_SEND_INLINE;
	wr.num_sge = 0;
	post(id, &wr);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_INLINE;
	wr.sg_list = words;
	wr.num_sge = 2;
	post(id, &wr);
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.send_flags = 0;
	wr.num_sge = 0;
	wr.invalidate_rkey = place.rkey;
	post(id, &wr);

	CHECK(!rdma_disconnect(id));
	/* A call has told of the end: there is nothing to wait for. */
	CHECK(rdma_disconnect(id) == -1 && errno == EINVAL);
	CHECK(!ibv_dereg_mr(mr));
	rdma_destroy_ep(id);
}

static void look_late(const char *address)
{
	struct rdma_cm_id *listener, *id;
	int signal, before, answered = 0;
	sigset_t told;

	sigemptyset(&told);
	sigaddset(&told, SIGUSR1);
	CHECK(!sigprocmask(SIG_BLOCK, &told, NULL));
	listener = endpoint(address, RAI_PASSIVE);
	before = descriptors();
	CHECK(!rdma_listen(listener, BACKLOG));
	CHECK(!sigwait(&told, &signal));
	/* A request's identifier has a descriptor. */
	CHECK(descriptors() <= before + BACKLOG);
	while (!answered) {
		CHECK(!rdma_get_request(listener, &id));
		answered = !rdma_reject(id, "heard", 5);
		rdma_destroy_ep(id);
	}
	rdma_destroy_ep(listener);
}

int main(int count, char **arguments)
{
	CHECK(count == 3);
	if (!strcmp(arguments[1], "server"))
		serve(arguments[2]);
	else if (!strcmp(arguments[1], "unread"))
		look_late(arguments[2]);
	else
		ask(arguments[2]);
	return 0;
}
