/* One program with both ends of a connection within a host, which checks what becomes of memory that is
   registered: by threads that use it, in ranges that overlap, after fork(2), mapped again. Argument: an
   address of the RNIC's. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(truth)                                                                     \
	do {                                                                             \
		if (!(truth)) {                                                          \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #truth, errno); \
			_exit(1);                                                        \
		}                                                                        \
	} while (0)

enum { PAGE = 4096, PAGES = 16, SIZE = PAGES * PAGE, THREADS = 3, ROUNDS = 60, OWN = 64 };
static const int ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* The end that asks, and the one that answers. */
static struct rdma_cm_id *asks, *answers;
static pthread_mutex_t one_request = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;

static void *mapped(size_t size, int more)
{
	void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);

	CHECK(start != MAP_FAILED);
	return start;
}

static struct rdma_cm_id *endpoint(const char *address, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo(address, "7471", &hints, &found));
	CHECK(!rdma_create_ep(&id, found, NULL, &attr));
	rdma_freeaddrinfo(found);
	return id;
}

static void *answer(void *listener)
{
	CHECK(!rdma_get_request(listener, &answers));
	CHECK(!rdma_accept(answers, NULL));
	return NULL;
}

/* The RNIC's copy of what is registered with the answering end, or of what is not any more. */
static enum ibv_wc_status fetch(void *to, struct ibv_mr *to_mr, const void *from, uint32_t rkey,
				uint32_t length)
{
	struct ibv_wc wc;

	pthread_mutex_lock(&one_request);
	CHECK(!rdma_post_read(asks, NULL, to, length, to_mr, 0, (uintptr_t)from, rkey));
	CHECK(rdma_get_send_comp(asks, &wc) == 1);
	pthread_mutex_unlock(&one_request);
	return wc.status;
}

static uint64_t seen(const void *word, uint32_t rkey)
{
	static uint64_t sink;
	static struct ibv_mr *mr;

	if (!mr)
		CHECK((mr = ibv_reg_mr(asks->pd, &sink, sizeof(sink), ACCESS)));
	CHECK(fetch(&sink, mr, word, rkey, sizeof(sink)) == IBV_WC_SUCCESS);
	return sink;
}

/* What the threads share. */
static char *shared;
static int pipes[2];

/* Each has bytes of its own on each page. It registers ranges that overlap the others' pages. */
static void *registers(void *argument)
{
	long thread = (long)argument;
	char *copy = malloc(SIZE), *pattern = malloc(OWN);
	struct ibv_mr *copy_mr = ibv_reg_mr(asks->pd, copy, SIZE, ACCESS);
	struct ibv_mr *pattern_mr = ibv_reg_mr(answers->pd, pattern, OWN, ACCESS);

	CHECK(copy_mr && pattern_mr);
	for (int round = 0; round < ROUNDS; round++) {
		int first = (round * 5 + (int)thread * 3) % (PAGES / 2), pages = 1 + round % (PAGES / 2);
		size_t offset = (size_t)first * PAGE, own = thread * OWN;
		size_t length = (size_t)(pages - 1) * PAGE + own + OWN;
		char *start = shared + offset;
		struct ibv_mr *remote, *local;

		memset(start + own, round + 1, OWN);
		CHECK((remote = ibv_reg_mr(answers->pd, start, length, ACCESS)));
		CHECK((local = ibv_reg_mr(asks->pd, start + own, OWN, ACCESS)));
		/* What was there, and what is written now, is seen by the RNIC. */
		CHECK(fetch(copy, copy_mr, start, remote->rkey, length) == IBV_WC_SUCCESS);
		CHECK(!memcmp(copy + own, start + own, OWN));
		memset(start + own, round + 2, OWN);
		CHECK(fetch(copy, copy_mr, start, remote->rkey, length) == IBV_WC_SUCCESS);
		CHECK(!memcmp(copy + own, start + own, OWN));
		/* And what the RNIC writes is seen here, also when it is registered no more. */
		memset(pattern, 100 + round, OWN);
		CHECK(fetch(start + own, local, pattern, pattern_mr->rkey, OWN) == IBV_WC_SUCCESS);
		CHECK(!memcmp(start + own, pattern, OWN));
		CHECK(!ibv_dereg_mr(round % 2 ? remote : local));
		CHECK(!memcmp(start + own, pattern, OWN));
		CHECK(!ibv_dereg_mr(round % 2 ? local : remote));
		CHECK(!memcmp(start + own, pattern, OWN));
	}
	CHECK(!ibv_dereg_mr(copy_mr) && !ibv_dereg_mr(pattern_mr));
	free(copy);
	free(pattern);
	return NULL;
}

/* write(2) from and read(2) into bytes that nobody else has, on each of the pages. */
static void *calls(void *unused)
{
	for (unsigned round = 0; !stop; round++) {
		char *own = shared + round % PAGES * PAGE + THREADS * OWN, bytes[OWN];

		memset(own, round, OWN);
		memset(bytes, round, OWN);
		CHECK(write(pipes[1], own, OWN) == OWN);
		memset(own, 0, OWN);
		CHECK(read(pipes[0], own, OWN) == OWN);
		CHECK(!memcmp(own, bytes, OWN));
	}
	return unused;
}

/* Plain writes: none is lost. */
static void *counts(void *unused)
{
	for (uint64_t round = 1; !stop; round++)
		for (int page = 0; page < PAGES; page++) {
			volatile uint64_t *own = (void *)(shared + page * PAGE + (THREADS + 1) * OWN);

			CHECK(*own == round - 1);
			*own = round;
		}
	return unused;
}

static void *advises(void *unused)
{
	while (!stop) {
		CHECK(!madvise(shared, SIZE, MADV_WILLNEED));
		CHECK(!madvise(shared, SIZE, MADV_DONTFORK));
		CHECK(!madvise(shared, SIZE, MADV_DOFORK));
		/* A page on which nobody has anything. */
		CHECK(!madvise(shared + SIZE, PAGE, MADV_DONTNEED));
	}
	return unused;
}

static void check_threads(void)
{
	void *(*const users[])(void *) = { calls, counts, advises };
	pthread_t registering[THREADS], using[3];

	shared = mapped(SIZE + PAGE, 0);
	CHECK(!pipe(pipes));
	for (int user = 0; user < 3; user++)
		CHECK(!pthread_create(&using[user], NULL, users[user], NULL));
	for (long thread = 0; thread < THREADS; thread++)
		CHECK(!pthread_create(&registering[thread], NULL, registers, (void *)thread));
	for (int thread = 0; thread < THREADS; thread++)
		CHECK(!pthread_join(registering[thread], NULL));
	stop = 1;
	for (int user = 0; user < 3; user++)
		CHECK(!pthread_join(using[user], NULL));
	/* The pages are private again. */
	*(uint64_t *)shared = 7;
	CHECK(!madvise(shared, SIZE, MADV_DONTNEED) && *(uint64_t *)shared == 0);
	munmap(shared, SIZE + PAGE);
}

/* What of memory registers, and with which rights: the table of docs/architecture/memory.md. */
enum { WRITES = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, READS = IBV_ACCESS_REMOTE_READ };

static void refused(void *start, size_t length, int access, int why, int line)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(answers->pd, start, length, access);
	if (mr || errno != why)
		fprintf(stderr, "of line %d: %p, errno %d and not %d\n", line, (void *)mr, errno, why);
	CHECK(!mr && errno == why);
}
#define REFUSED(start, length, access, why) refused(start, length, access, why, __LINE__)

/* It registers, and a peer reads what is there. */
static void taken(void *start, size_t length, int access, int line)
{
	static char found[PAGE], *const sink = found;
	struct ibv_mr *mr = ibv_reg_mr(answers->pd, start, length, access);
	struct ibv_mr *to = ibv_reg_mr(asks->pd, sink, PAGE, ACCESS);
	size_t some = length < PAGE ? length : PAGE;

	if (!mr)
		fprintf(stderr, "of line %d: errno %d\n", line, errno);
	CHECK(mr && to);
	if (access & IBV_ACCESS_REMOTE_READ) {
		char *last = (char *)start + length - some;

		CHECK(fetch(sink, to, last, mr->rkey, some) == IBV_WC_SUCCESS);
		CHECK(!memcmp(sink, last, some));
	}
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(to));
}
#define TAKEN(start, length, access) taken(start, length, access, __LINE__)

static void *of_file(int file, int rights, int flags)
{
	void *start = mmap(NULL, 2 * PAGE, rights, flags, file, 0);

	CHECK(start != MAP_FAILED);
	return start;
}

/* The stack has not grown so far before. */
static __attribute__((noinline)) void check_stack(void)
{
	char large[1 << 20];

	CHECK(large > (char *)0);
	TAKEN(large, sizeof(large), WRITES);
	TAKEN(large + 100, 100, WRITES);
}

static void check_what_registers(void)
{
	static int data[100] = { 1, 2, 3 };
	static int zeroed[PAGE];
	static const int constant[100] = { 4, 5, 6 };
	char *hole = mapped(3 * PAGE, 0), *anonymous = mapped(2 * PAGE, 0), *heap = malloc(1000);
	FILE *named = tmpfile();
	int file = fileno(named);
	void *start;

	/* Nothing, and what is not there. */
	REFUSED(data, 0, WRITES, EINVAL);
	REFUSED(NULL, 0, WRITES, EINVAL);
	REFUSED(data, ~(size_t)0 - 100, WRITES, EINVAL);
	REFUSED(NULL, PAGE, WRITES, EFAULT);
	REFUSED((void *)(1UL << 50), PAGE, READS, EFAULT);
	munmap(hole + PAGE, PAGE);
	REFUSED(hole, 3 * PAGE, WRITES, EFAULT);
	REFUSED(hole, 3 * PAGE, READS, EFAULT);
	REFUSED(hole + PAGE, 10, READS, EFAULT);
	hole[0] = hole[2 * PAGE] = 1;
	TAKEN(hole, PAGE, WRITES);
	/* Private memory. */
	TAKEN(anonymous, 2 * PAGE, WRITES);
	TAKEN(heap, 1000, WRITES);
	TAKEN(data, sizeof(data), WRITES);
	TAKEN(zeroed, sizeof(zeroed), WRITES);
	check_stack();
	CHECK(!mprotect(anonymous + PAGE, PAGE, PROT_READ));
	REFUSED(anonymous, 2 * PAGE, WRITES, EFAULT);
	REFUSED(anonymous + PAGE, 1, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	TAKEN(anonymous, 2 * PAGE, READS);
	CHECK(!mprotect(anonymous + PAGE, PAGE, PROT_NONE));
	REFUSED(anonymous, 2 * PAGE, READS, EFAULT);
	REFUSED(anonymous + PAGE, 1, 0, EFAULT);
	/* A program's own. */
	REFUSED((void *)constant, sizeof(constant), WRITES, EFAULT);
	TAKEN((void *)constant, sizeof(constant), READS);
	TAKEN("a text", 7, 0);
	REFUSED((void *)mapped, 64, WRITES, EFAULT);
	TAKEN((void *)mapped, 64, READS);
	/* Shared memory and files, of which there is one page. */
	TAKEN(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), PAGE, WRITES);
	CHECK(!ftruncate(file, PAGE));
	start = of_file(file, PROT_READ | PROT_WRITE, MAP_SHARED);
	TAKEN(start, PAGE, WRITES);
	REFUSED(start, 2 * PAGE, WRITES, EFAULT);
	REFUSED(start, 2 * PAGE, READS, EFAULT);
	start = of_file(file, PROT_READ, MAP_SHARED);
	REFUSED(start, PAGE, WRITES, EFAULT);
	TAKEN(start, PAGE, READS);
	REFUSED(start, 2 * PAGE, READS, EFAULT);
	start = of_file(file, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	TAKEN(start, PAGE, WRITES);
	REFUSED(start, 2 * PAGE, WRITES, EFAULT);
	start = of_file(file, PROT_READ, MAP_PRIVATE);
	REFUSED(start, PAGE, WRITES, EFAULT);
	TAKEN(start, PAGE, READS);
	/* Registering anew keeps the old registration where it fails. */
	{
		struct ibv_mr *mr = ibv_reg_mr(answers->pd, heap, 1000, READS);

		CHECK(mr && ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)(1UL << 50), PAGE, 0));
		CHECK(errno == EFAULT && seen(heap, mr->rkey) == *(uint64_t *)heap && !ibv_dereg_mr(mr));
	}
	fclose(named);
	free(heap);
}

/* A region of memory that is gone has what was there, and no region has the other's. */
static void check_mapped_again(void)
{
	uint64_t *word = mapped(4 * PAGE, 0);
	struct ibv_mr *old, *new;

	*word = 1;
	CHECK((old = ibv_reg_mr(answers->pd, word, 4 * PAGE, ACCESS)));
	CHECK(!munmap(word, 4 * PAGE) && mapped(4 * PAGE, 0) == word);
	*word = 2;
	CHECK((new = ibv_reg_mr(answers->pd, word, 4 * PAGE, ACCESS)));
	CHECK(seen(word, old->rkey) == 1 && seen(word, new->rkey) == 2);
	*word = 3;
	CHECK(seen(word, old->rkey) == 1 && seen(word, new->rkey) == 3);
	CHECK(!ibv_dereg_mr(old) && *word == 3);
	*word = 4;
	CHECK(seen(word, new->rkey) == 4);
	CHECK(!ibv_dereg_mr(new) && *word == 4);
	munmap(word, 4 * PAGE);
	/* Allocators map and unmap as well. */
	for (int round = 0; round < 20; round++) {
		uint64_t *of_heap = malloc(1 << 20);

		of_heap[0] = round;
		CHECK((old = ibv_reg_mr(answers->pd, of_heap, 1 << 20, ACCESS)));
		CHECK(seen(of_heap, old->rkey) == (uint64_t)round);
		free(of_heap);
		CHECK(!ibv_dereg_mr(old));
	}
}

/* Registering is refused before a page of it is populated. */
static void check_terabyte(void)
{
	void *start = mapped(1UL << 40, MAP_NORESERVE);
	struct timespec begun, ended;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	CHECK(!ibv_reg_mr(answers->pd, start, 1UL << 40, ACCESS) && errno == ENOMEM);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	CHECK(ended.tv_sec - begun.tv_sec < 5);
	munmap(start, 1UL << 40);
}

/* The end of a child that is to end well. */
static void wait_for(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What a child does with what its parent has: it fails, and nothing of the parent's changes. */
static void use_parents(struct ibv_mr *mr, uint64_t *word)
{
	struct ibv_sge all = { .addr = (uintptr_t)word, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &all, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *cq_context;

	CHECK(ibv_post_send(asks->qp, &wr, &bad));
	CHECK(ibv_poll_cq(asks->send_cq, 1, &wc) <= 0);
	CHECK(!ibv_reg_mr(answers->pd, word, PAGE, ACCESS));
	ibv_dereg_mr(mr);
	CHECK(!ibv_alloc_pd(asks->verbs));
	CHECK(ibv_get_cq_event(asks->send_cq_channel, &cq, &cq_context));
	CHECK(ibv_get_async_event(asks->verbs, &event));
	CHECK(rdma_disconnect(asks) == -1);
	rdma_destroy_ep(asks);
}

/* What a child does with a device that it opens itself. */
static void use_own(uint64_t *word)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	CHECK(all && all[0] && (context = ibv_open_device(all[0])));
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((mr = ibv_reg_mr(pd, word, PAGE, ACCESS)));
	*word = 10;
	CHECK(!ibv_dereg_mr(mr) && *word == 10);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(all);
}

static void check_fork(void)
{
	uint64_t *word = mapped(4 * PAGE, 0);
	struct ibv_mr *mr = ibv_reg_mr(answers->pd, word, 4 * PAGE, ACCESS);
	pid_t child;

	CHECK(mr);
	*word = 1;
	for (int kind = 0; kind < 3; kind++) {
		if (!(child = fork())) {
			alarm(20);
			CHECK(*word == (uint64_t)kind + 1);
			*word = 9;
			if (kind == 1)
				use_parents(mr, word);
			if (kind == 2)
				use_own(word);
			_exit(0);
		}
		/* While it lives and when it is gone. */
		CHECK(seen(word, mr->rkey) == (uint64_t)kind + 1);
		wait_for(child);
		CHECK(*word == (uint64_t)kind + 1 && seen(word, mr->rkey) == (uint64_t)kind + 1);
		*word = kind + 2;
		CHECK(seen(word, mr->rkey) == (uint64_t)kind + 2);
	}
	CHECK(!ibv_dereg_mr(mr) && *word == 4);
	if (!(child = fork())) {
		*word = 9;
		_exit(0);
	}
	wait_for(child);
	CHECK(*word == 4);
	munmap(word, 4 * PAGE);
}

/* fork(2): the child has a copy of the memory at the time of the call. A part of the first page is registered. */
static void check_fork_snapshot(size_t size)
{
	char *start = mapped(size, 0);
	volatile int *word = (int *)start, *last = (int *)(start + size - sizeof(int));
	struct ibv_mr *mr = ibv_reg_mr(answers->pd, start + PAGE / 2, size - PAGE / 2, ACCESS);

	CHECK(mr);
	for (int round = 0; round < 100; round++) {
		pid_t child;

		*word = *last = round;
		if (!(child = fork()))
			_exit(*word != round || *last != round);
		*word = *last = round + 1000;
		wait_for(child);
	}
	CHECK(!ibv_dereg_mr(mr));
	munmap(start, size);
}

int main(int count, char **arguments)
{
	struct rdma_cm_id *listener;
	pthread_t answering;

	CHECK(count == 2);
	CHECK(!ibv_fork_init());
	listener = endpoint(arguments[1], RAI_PASSIVE);
	CHECK(!rdma_listen(listener, 1));
	CHECK(!pthread_create(&answering, NULL, answer, listener));
	asks = endpoint(arguments[1], 0);
	CHECK(!rdma_connect(asks, NULL));
	CHECK(!pthread_join(answering, NULL));
	check_what_registers();
	check_threads();
	check_mapped_again();
	check_terabyte();
	check_fork();
	check_fork_snapshot(PAGE);
	check_fork_snapshot(4 * 1024 * 1024);
	CHECK(!rdma_disconnect(asks));
	rdma_destroy_ep(asks);
	rdma_destroy_ep(answers);
	rdma_destroy_ep(listener);
	return 0;
}
