/* Work requests: those that are made by calls (ibv_wr_post(3)), lists of them (ibv_post_send(3)), fences and
   memory windows (ibv_bind_mw(3)). The client works on the server's memory. Arguments: "server" or "client",
   and the server's address. */
#include "check.h"

/* Parts of either end's memory. */
enum { WRITTEN = 0, READ = 1024, FENCED = 2048, WORDS = 3072, HEARD = 4096, SIZE = 8192 };
enum { DEPTH = 16, LIST = 5, ADDED = 5, SWAPPED = 77 };
static const uint32_t IMMEDIATE = 0x12345678;
static char memory[SIZE] __attribute__((aligned(4096)));

static const uint64_t OPERATIONS =
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
	IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
	IBV_QP_EX_WITH_SEND_WITH_INV;

/* Memory that a peer may reach. */
struct place {
	uint64_t addr;
	uint32_t rkey, unused;
};

struct end {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_qp_ex *qp;
	struct ibv_mr *mr;
};

static struct ibv_qp_init_attr_ex attributes(struct end *end, uint64_t operations)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .pd = end->id->pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1,
			 .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = operations,
	};
}

static void receive(struct end *end)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + HEARD, .length = 256, .lkey = end->mr->lkey };
	struct ibv_recv_wr second = { .wr_id = 100, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr first = second, *bad;

	first.next = &second;
	CHECK(!ibv_post_recv(&end->qp->qp_base, &first, &bad));
}

static void prepare(struct end *end, struct rdma_cm_id *id)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	struct ibv_qp_init_attr_ex init;

	end->id = id;
	CHECK((end->cq = ibv_create_cq(id->verbs, 4 * DEPTH, NULL, NULL, 0)));
	CHECK((end->mr = ibv_reg_mr(id->pd, memory, SIZE, access)));
	init = attributes(end, OPERATIONS);
	CHECK(!rdma_create_qp_ex(id, &init));
	CHECK((end->qp = ibv_qp_to_qp_ex(id->qp)));
	for (int twice = 0; twice < DEPTH / 2; twice++)
		receive(end);
}

static void finish(struct end *end)
{
	rdma_destroy_qp(end->id);
	CHECK(!ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq) && !rdma_destroy_id(end->id));
}

static struct ibv_wc next(struct end *end)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(end->cq, 1, &wc))
		;
	if (wc.status)
		fprintf(stderr, "work %ld: %s\n", (long)wc.wr_id, ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void done(struct end *end, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next(end);

	CHECK(wc.wr_id == wr_id && wc.opcode == opcode);
}

/* What the next work request made by a call has. */
static struct ibv_qp_ex *as(struct end *end, uint64_t wr_id, unsigned int flags)
{
	end->qp->wr_id = wr_id;
	end->qp->wr_flags = flags;
	return end->qp;
}

static void set_sge(struct end *end, size_t at, uint32_t length)
{
	ibv_wr_set_sge(end->qp, end->mr->lkey, (uintptr_t)memory + at, length);
}

static void tell(struct end *end, const void *addr, uint32_t rkey)
{
	struct place place = { .addr = (uintptr_t)addr, .rkey = rkey };

	ibv_wr_start(end->qp);
	ibv_wr_send(as(end, 1, IBV_SEND_SIGNALED));
	ibv_wr_set_inline_data(end->qp, &place, sizeof(place));
	CHECK(!ibv_wr_complete(end->qp));
	done(end, 1, IBV_WC_SEND);
}

static struct place hear(struct end *end)
{
	struct place place;

	done(end, 100, IBV_WC_RECV);
	memcpy(&place, memory + HEARD, sizeof(place));
	return place;
}

/* A batch with one of each. */
static void check_calls(struct end *end, struct place peer)
{
	struct ibv_sge halves[2] = {
		{ .addr = (uintptr_t)memory, .length = 100, .lkey = end->mr->lkey },
		{ .addr = (uintptr_t)memory + 100, .length = 400, .lkey = end->mr->lkey },
	};
	struct ibv_data_buf words[2] = { { .addr = "by ", .length = 3 }, { .addr = "calls", .length = 6 } };
	uint64_t before[2];

	memset(memory, 'c', 500);
	ibv_wr_start(end->qp);
	ibv_wr_rdma_write(as(end, 1, 0), peer.rkey, peer.addr + WRITTEN);
	ibv_wr_set_sge_list(end->qp, 2, halves);
	/* The list is copied. */
	memset(halves, 0, sizeof(halves));
	ibv_wr_rdma_read(as(end, 2, IBV_SEND_SIGNALED), peer.rkey, peer.addr + READ);
	set_sge(end, READ, 1000);
	ibv_wr_atomic_fetch_add(as(end, 3, IBV_SEND_SIGNALED), peer.rkey, peer.addr + WORDS, ADDED);
	set_sge(end, WORDS, 8);
	ibv_wr_atomic_cmp_swp(as(end, 4, IBV_SEND_SIGNALED), peer.rkey, peer.addr + WORDS, ADDED, SWAPPED);
	set_sge(end, WORDS + 8, 8);
	ibv_wr_rdma_write_imm(as(end, 5, IBV_SEND_SIGNALED), peer.rkey, peer.addr + WRITTEN + 500,
			      htonl(IMMEDIATE));
	ibv_wr_set_inline_data(end->qp, "immediate", 9);
	ibv_wr_send_imm(as(end, 6, IBV_SEND_SIGNALED), htonl(IMMEDIATE));
	/* Without a fence it may overtake the atomics (RFC 7306 section 5.4, rule 6). */
	ibv_wr_send(as(end, 7, IBV_SEND_SIGNALED | IBV_SEND_FENCE));
	ibv_wr_set_inline_data_list(end->qp, 2, words);
	words[1].addr = "other";
	CHECK(!ibv_wr_complete(end->qp));
	done(end, 2, IBV_WC_RDMA_READ);
	done(end, 3, IBV_WC_FETCH_ADD);
	done(end, 4, IBV_WC_COMP_SWAP);
	done(end, 5, IBV_WC_RDMA_WRITE);
	done(end, 6, IBV_WC_SEND);
	done(end, 7, IBV_WC_SEND);
	CHECK(memory[READ] == 's' && memory[READ + 999] == 's');
	memcpy(before, memory + WORDS, sizeof(before));
	CHECK(before[0] == 0 && before[1] == ADDED);
}

static void check_called(struct end *end)
{
	struct ibv_wc wc = next(end);
	uint64_t word;

	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(wc.imm_data) == IMMEDIATE && wc.byte_len == 9);
	CHECK(memory[WRITTEN] == 'c' && memory[WRITTEN + 499] == 'c');
	CHECK(!memcmp(memory + WRITTEN + 500, "immediate", 9) && !memory[WRITTEN + 509]);
	wc = next(end);
	CHECK(wc.opcode == IBV_WC_RECV && ntohl(wc.imm_data) == IMMEDIATE && wc.byte_len == 0);
	wc = next(end);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 9 && !strcmp(memory + HEARD, "by calls"));
	memcpy(&word, memory + WORDS, sizeof(word));
	CHECK(word == SWAPPED);
}

/* What is not there, and what was not asked for. */
static void check_operations(struct end *end)
{
	struct ibv_qp_init_attr_ex init = attributes(end, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO);
	struct ibv_qp *qp;

	CHECK(!ibv_create_qp_ex(end->id->verbs, &init) && errno == EOPNOTSUPP);
	init.send_ops_flags = IBV_QP_EX_WITH_SEND;
	CHECK((qp = ibv_create_qp_ex(end->id->verbs, &init)));
	CHECK(ibv_qp_to_qp_ex(qp)->wr_send && !ibv_qp_to_qp_ex(qp)->wr_rdma_write);
	CHECK(!ibv_destroy_qp(qp));
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	CHECK((qp = ibv_create_qp_ex(end->id->verbs, &init)));
	CHECK(!ibv_qp_to_qp_ex(qp));
	CHECK(!ibv_destroy_qp(qp));
}

/* So many Sends, or their error. */
static int sends(struct ibv_qp_ex *qp, int count)
{
	ibv_wr_start(qp);
	while (count--)
		ibv_wr_send(qp);
	return ibv_wr_complete(qp);
}

/* Of a queue pair that does not take its work yet. */
static void check_room(struct end *end)
{
	struct ibv_qp_init_attr_ex init = attributes(end, OPERATIONS);
	struct ibv_send_wr list[4 * DEPTH] = {}, *bad = NULL;
	struct ibv_qp *qp;
	int room = 0;

	CHECK((qp = ibv_create_qp_ex(end->id->verbs, &init)));
	list[0].opcode = IBV_WR_SEND;
	while (!ibv_post_send(qp, list, &bad))
		room++;
	CHECK(room >= DEPTH && room < 4 * DEPTH && bad == list && !ibv_destroy_qp(qp));

	/* What is made by calls is posted whole or not at all. */
	CHECK((qp = ibv_create_qp_ex(end->id->verbs, &init)));
	CHECK(sends(ibv_qp_to_qp_ex(qp), room + 1) == ENOMEM);
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	ibv_wr_send(ibv_qp_to_qp_ex(qp));
	ibv_wr_abort(ibv_qp_to_qp_ex(qp));
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	ibv_wr_send(ibv_qp_to_qp_ex(qp));
	ibv_wr_set_inline_data(ibv_qp_to_qp_ex(qp), memory, 65);
	CHECK(ibv_wr_complete(ibv_qp_to_qp_ex(qp)) == EINVAL);
	CHECK(!sends(ibv_qp_to_qp_ex(qp), room));
	CHECK(sends(ibv_qp_to_qp_ex(qp), 1) == ENOMEM);
	CHECK(!ibv_destroy_qp(qp));

	/* Of a list as much as there is room for. */
	CHECK((qp = ibv_create_qp_ex(end->id->verbs, &init)));
	for (int wr = 0; wr < room + 2; wr++) {
		list[wr].opcode = IBV_WR_SEND;
		list[wr].next = wr < room + 1 ? &list[wr + 1] : NULL;
	}
	CHECK(ibv_post_send(qp, list, &bad) == ENOMEM && bad == &list[room]);
	CHECK(!ibv_destroy_qp(qp));
}

/* The third of five is wrong: in itself, or for the queue pair. */
static void check_lists(struct end *end, struct place peer)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 8, .lkey = end->mr->lkey };
	struct ibv_sge words[2] = { { .addr = (uintptr_t)"inl", .length = 3 },
				    { .addr = (uintptr_t)"ine", .length = 3 } };
	struct ibv_send_wr list[LIST], *bad;

	for (int wrong = 0; wrong < 3; wrong++) {
		for (int wr = 0; wr < LIST; wr++) {
			list[wr] = (struct ibv_send_wr){
				.wr_id = wr, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				.sg_list = &sge, .num_sge = 1, .next = wr + 1 < LIST ? &list[wr + 1] : NULL,
				.wr.rdma = { .remote_addr = peer.addr + WRITTEN, .rkey = peer.rkey },
			};
		}
		/* One of them is made of several parts. */
		list[1].send_flags |= IBV_SEND_INLINE;
		list[1].sg_list = words;
		list[1].num_sge = 2;
		if (wrong == 1)
			list[2].opcode = IBV_WR_TSO;
		if (wrong == 2)
			list[2].num_sge = 3;
		bad = NULL;
		if (!wrong)
			CHECK(!ibv_post_send(&end->qp->qp_base, list, &bad) && !bad);
		else
			CHECK(ibv_post_send(&end->qp->qp_base, list, &bad) && bad == &list[2]);
		for (int wr = 0; wr < (wrong ? 2 : LIST); wr++)
			done(end, wr, IBV_WC_RDMA_WRITE);
	}
	CHECK(!ibv_poll_cq(end->cq, 1, &(struct ibv_wc){}));
}

/* What is read goes out again by the next work request. */
static void check_fence(struct end *end, struct place peer)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + FENCED, .length = 1000, .lkey = end->mr->lkey };
	struct ibv_send_wr write = {
		.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
		.sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = peer.addr + FENCED, .rkey = peer.rkey },
	};
	struct ibv_send_wr read = {
		.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = 1, .next = &write,
		.wr.rdma = { .remote_addr = peer.addr + READ, .rkey = peer.rkey },
	}, *bad;

	CHECK(!ibv_post_send(&end->qp->qp_base, &read, &bad));
	done(end, 1, IBV_WC_RDMA_READ);
	done(end, 2, IBV_WC_RDMA_WRITE);
}

static void bind_type_1(struct end *end, struct ibv_mw *mw, uint64_t length)
{
	struct ibv_mw_bind bind = {
		.wr_id = 3, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = end->mr, .addr = (uintptr_t)memory + WRITTEN, .length = length,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};

	CHECK(!ibv_bind_mw(&end->qp->qp_base, mw, &bind));
	done(end, 3, IBV_WC_BIND_MW);
}

/* Under the next key, by a list or by a call. */
static void bind_type_2(struct end *end, struct ibv_mw *mw, int by_call)
{
	struct ibv_send_wr wr = {
		.wr_id = 4, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = { .mr = end->mr, .addr = (uintptr_t)memory + WRITTEN, .length = 64,
				       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
		},
	}, *bad;

	if (by_call) {
		ibv_wr_start(end->qp);
		ibv_wr_bind_mw(as(end, 4, IBV_SEND_SIGNALED), mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info);
		CHECK(!ibv_wr_complete(end->qp));
	} else {
		CHECK(!ibv_post_send(&end->qp->qp_base, &wr, &bad));
	}
	mw->rkey = wr.bind_mw.rkey;
	done(end, 4, IBV_WC_BIND_MW);
	/* The other 24 bits name it. */
	wr.bind_mw.rkey ^= 0x100;
	CHECK(ibv_post_send(&end->qp->qp_base, &wr, &bad) == EINVAL);
}

static void lend_windows(struct end *end)
{
	struct ibv_device_attr device;
	struct ibv_mw_bind none = {};
	struct ibv_mw *mw;
	uint32_t before;

	CHECK(!ibv_query_device(end->id->verbs, &device) && device.max_mw > 0);
	CHECK(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	CHECK(!ibv_alloc_mw(end->id->pd, 3) && errno == EINVAL);
	CHECK((mw = ibv_alloc_mw(end->id->pd, IBV_MW_TYPE_1)));
	for (int round = 0; round < 2; round++) {
		before = mw->rkey;
		bind_type_1(end, mw, 64);
		CHECK(mw->rkey != before);
		memory[WRITTEN] = 0;
		tell(end, memory + WRITTEN, mw->rkey);
		hear(end);
		CHECK(memory[WRITTEN] == 'w');
	}
	bind_type_1(end, mw, 0);
	CHECK(!ibv_dealloc_mw(mw));

	CHECK((mw = ibv_alloc_mw(end->id->pd, IBV_MW_TYPE_2)));
	CHECK(ibv_bind_mw(&end->qp->qp_base, mw, &none) == EINVAL);
	for (int by_call = 0; by_call < 2; by_call++) {
		struct ibv_wc wc;

		bind_type_2(end, mw, by_call);
		memory[WRITTEN] = 0;
		tell(end, memory + WRITTEN, mw->rkey);
		wc = next(end);
		CHECK((wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == mw->rkey);
		CHECK(memory[WRITTEN] == 'w');
	}
	/* Here too it can be invalidated, when it is bound. */
	bind_type_2(end, mw, 1);
	ibv_wr_start(end->qp);
	ibv_wr_local_inv(as(end, 5, IBV_SEND_SIGNALED), mw->rkey);
	CHECK(!ibv_wr_complete(end->qp));
	done(end, 5, IBV_WC_LOCAL_INV);
	CHECK(!ibv_dealloc_mw(mw));
}

static void use_windows(struct end *end)
{
	for (int window = 0; window < 4; window++) {
		struct place place = hear(end);
		int is_type_2 = window >= 2;

		ibv_wr_start(end->qp);
		ibv_wr_rdma_write(as(end, 1, 0), place.rkey, place.addr);
		ibv_wr_set_inline_data(end->qp, "w", 1);
		if (is_type_2)
			ibv_wr_send_inv(as(end, 2, IBV_SEND_SIGNALED), place.rkey);
		else
			ibv_wr_send(as(end, 2, IBV_SEND_SIGNALED));
		CHECK(!ibv_wr_complete(end->qp));
		done(end, 2, IBV_WC_SEND);
	}
}

static void serve(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	struct end end;

	memset(memory + READ, 's', 1000);
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address) && !rdma_listen(listener, 4));
	CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	prepare(&end, event->id);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_accept(end.id, NULL));
	expect(channel, end.id, RDMA_CM_EVENT_ESTABLISHED);
	tell(&end, memory, end.mr->rkey);
	check_called(&end);
	hear(&end);
	CHECK(memory[FENCED] == 's' && memory[FENCED + 999] == 's');
	lend_windows(&end);
	tell(&end, NULL, 0);
	expect(channel, end.id, RDMA_CM_EVENT_DISCONNECTED);
	finish(&end);
	CHECK(!rdma_destroy_id(listener));
}

static void ask(struct rdma_event_channel *channel, struct sockaddr *address)
{
	struct place peer;
	struct end end;

	prepare(&end, resolved(channel, address));
	CHECK(!rdma_connect(end.id, NULL));
	expect(channel, end.id, RDMA_CM_EVENT_ESTABLISHED);
	peer = hear(&end);
	check_calls(&end, peer);
	check_operations(&end);
	check_room(&end);
	check_lists(&end, peer);
	check_fence(&end, peer);
	tell(&end, NULL, 0);
	use_windows(&end);
	hear(&end);
	CHECK(!rdma_disconnect(end.id));
	expect(channel, end.id, RDMA_CM_EVENT_DISCONNECTED);
	finish(&end);
}

int main(int count, char **arguments)
{
	return run_end(count, arguments, serve, ask);
}
