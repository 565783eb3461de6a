// A C++ program that loads the libraries itself, as NCCL does: dlopen, and dlvsym of each function with its
// version. It is linked with neither, and has only the headers' inline functions. It connects queue pairs of
// ibv_create_qp, and the client writes to the server's memory. Arguments: "server" or "client", and the server's
// address.
#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <vector>

// What is called by its name: the library, the function, its version.
#define FUNCTIONS(with)                                \
	with(verbs, ibv_get_device_list, "IBVERBS_1.1")  \
	with(verbs, ibv_free_device_list, "IBVERBS_1.1") \
	with(verbs, ibv_get_device_name, "IBVERBS_1.1")  \
	with(verbs, ibv_open_device, "IBVERBS_1.1")      \
	with(verbs, ibv_close_device, "IBVERBS_1.1")     \
	with(verbs, ibv_query_device, "IBVERBS_1.1")     \
	with(verbs, ibv_query_gid, "IBVERBS_1.1")        \
	with(verbs, ibv_fork_init, "IBVERBS_1.1")        \
	with(verbs, ibv_event_type_str, "IBVERBS_1.1")   \
	with(verbs, ibv_alloc_pd, "IBVERBS_1.1")         \
	with(verbs, ibv_dealloc_pd, "IBVERBS_1.1")       \
	with(verbs, ibv_reg_mr_iova2, "IBVERBS_1.8")     \
	with(verbs, ibv_dereg_mr, "IBVERBS_1.1")         \
	with(verbs, ibv_create_cq, "IBVERBS_1.1")        \
	with(verbs, ibv_destroy_cq, "IBVERBS_1.1")       \
	with(verbs, ibv_create_qp, "IBVERBS_1.1")        \
	with(verbs, ibv_modify_qp, "IBVERBS_1.1")        \
	with(verbs, ibv_destroy_qp, "IBVERBS_1.1")       \
	with(cm, rdma_create_event_channel, "RDMACM_1.0")  \
	with(cm, rdma_destroy_event_channel, "RDMACM_1.0") \
	with(cm, rdma_create_id, "RDMACM_1.0")             \
	with(cm, rdma_destroy_id, "RDMACM_1.0")            \
	with(cm, rdma_bind_addr, "RDMACM_1.0")             \
	with(cm, rdma_listen, "RDMACM_1.0")                \
	with(cm, rdma_resolve_addr, "RDMACM_1.0")          \
	with(cm, rdma_resolve_route, "RDMACM_1.0")         \
	with(cm, rdma_connect, "RDMACM_1.0")               \
	with(cm, rdma_accept, "RDMACM_1.0")                \
	with(cm, rdma_disconnect, "RDMACM_1.0")            \
	with(cm, rdma_get_cm_event, "RDMACM_1.0")          \
	with(cm, rdma_ack_cm_event, "RDMACM_1.0")          \
	with(cm, rdma_event_str, "RDMACM_1.0")

// In here these names are what was loaded.
namespace loaded {

#define DECLARE(library, name, version) decltype(&::name) name;
FUNCTIONS(DECLARE)

#include "check.h"

void load()
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *cm = dlopen("librdmacm.so.1", RTLD_NOW);

	CHECK(verbs && cm);
	// Some ask for these names first, and would get the system's libraries.
	CHECK(dlopen("libibverbs.so", RTLD_NOW) == verbs && dlopen("librdmacm.so", RTLD_NOW) == cm);
#define LOAD(library, name, version)                                               \
	name = reinterpret_cast<decltype(name)>(dlvsym(library, #name, version)); \
	CHECK(name);
	FUNCTIONS(LOAD)
}

constexpr size_t SIZE = 100000;

// What a peer is told when the connection is made.
struct Place {
	uint64_t addr;
	uint32_t rkey;
};

// Memory of the heap, and what it takes to let a peer write there.
struct End {
	std::vector<char> bytes = std::vector<char>(SIZE);
	ibv_pd *pd;
	ibv_cq *cq;
	ibv_mr *mr;
	ibv_qp *qp;
	rdma_conn_param param{};

	explicit End(ibv_context *context)
		: pd(ibv_alloc_pd(context)), cq(ibv_create_cq(context, 16, nullptr, nullptr, 0))
	{
		ibv_qp_init_attr init{};

		CHECK(pd && cq);
		init.send_cq = init.recv_cq = cq;
		init.qp_type = IBV_QPT_RC;
		init.cap = { 4, 4, 1, 1, 0 };
		mr = ibv_reg_mr_iova2(pd, bytes.data(), SIZE, reinterpret_cast<uint64_t>(bytes.data()),
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);
		qp = ibv_create_qp(pd, &init);
		CHECK(mr && qp);
		param.qp_num = qp->qp_num;
	}

	~End()
	{
		CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	}

	ibv_wc next()
	{
		ibv_wc wc;

		while (!::ibv_poll_cq(cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == qp->qp_num);
		return wc;
	}
};

// What NCCL asks of each device before it uses one.
void look_at_devices()
{
	int count = 0;
	ibv_device **devices = ibv_get_device_list(&count);

	CHECK(!ibv_fork_init() && devices && count > 0);
	for (int index = 0; index < count; index++) {
		ibv_context *context = ibv_open_device(devices[index]);
		ibv_device_attr attr;
		ibv_gid gid;

		CHECK(context && strlen(ibv_get_device_name(devices[index])) > 0);
		CHECK(!ibv_query_device(context, &attr) && attr.phys_port_cnt == 1 && attr.max_qp > 0);
		CHECK(!ibv_query_gid(context, 1, 0, &gid));
		CHECK(!ibv_close_device(context));
	}
	ibv_free_device_list(devices);
	CHECK(strlen(ibv_event_type_str(IBV_EVENT_DEVICE_FATAL)) > 0);
}

void serve(rdma_event_channel *channel, sockaddr *address)
{
	rdma_cm_id *listener, *id;
	rdma_cm_event *event;
	ibv_recv_wr wr{}, *bad;

	CHECK(!rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, address) && !rdma_listen(listener, 1));
	CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	CHECK(!rdma_ack_cm_event(event));
	{
		End end(id->verbs);
		Place place{ reinterpret_cast<uint64_t>(end.bytes.data()), end.mr->rkey };

		CHECK(!::ibv_post_recv(end.qp, &wr, &bad));
		end.param.private_data = &place;
		end.param.private_data_len = sizeof(place);
		CHECK(!rdma_accept(id, &end.param));
		expect(channel, id, RDMA_CM_EVENT_ESTABLISHED);
		ibv_wc wc = end.next();
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == SIZE);
		for (size_t at = 0; at < SIZE; at++)
			CHECK(end.bytes[at] == static_cast<char>(at * 7));
		expect(channel, id, RDMA_CM_EVENT_DISCONNECTED);
	}
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(listener));
}

void ask(rdma_event_channel *channel, sockaddr *address)
{
	rdma_cm_id *id = resolved(channel, address);
	rdma_cm_event *event;
	Place place;

	{
		End end(id->verbs);
		ibv_sge sge{ reinterpret_cast<uint64_t>(end.bytes.data()), SIZE, end.mr->lkey };
		ibv_send_wr wr{}, *bad;

		CHECK(!rdma_connect(id, &end.param));
		CHECK(!rdma_get_cm_event(channel, &event) && event->event == RDMA_CM_EVENT_ESTABLISHED);
		CHECK(event->param.conn.private_data_len >= sizeof(place));
		memcpy(&place, event->param.conn.private_data, sizeof(place));
		CHECK(!rdma_ack_cm_event(event));
		for (size_t at = 0; at < SIZE; at++)
			end.bytes[at] = static_cast<char>(at * 7);
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.rdma = { place.addr, place.rkey };
		CHECK(!::ibv_post_send(end.qp, &wr, &bad));
		CHECK(end.next().opcode == IBV_WC_RDMA_WRITE);
		CHECK(!rdma_disconnect(id));
		expect(channel, id, RDMA_CM_EVENT_DISCONNECTED);
	}
	CHECK(!rdma_destroy_id(id));
}

} // namespace loaded

int main(int count, char **arguments)
{
	using namespace loaded;
	sockaddr_in address{};

	load();
	rdma_event_channel *channel = loaded::rdma_create_event_channel();
	address.sin_family = AF_INET;
	address.sin_port = htons(7471);
	CHECK(channel && count == 3 && inet_pton(AF_INET, arguments[2], &address.sin_addr) == 1);
	look_at_devices();
	if (!strcmp(arguments[1], "server"))
		serve(channel, reinterpret_cast<sockaddr *>(&address));
	else
		ask(channel, reinterpret_cast<sockaddr *>(&address));
	loaded::rdma_destroy_event_channel(channel);
	return 0;
}
