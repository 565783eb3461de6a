/* rnic-perf's protocol, both roles, for bandwidth: what tools/src/perf/plan.rs says in the private
 * data (in postcard's encoding: numbers of seven bits a byte) and control.rs in Sends. */
#include "verbs.h"

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define NOTE 17
#define NOTES 8
#define READS 16
/* wr_ids of notes. */
#define NOTE_IN (1ull << 63)
#define NOTE_OUT (NOTE_IN | 1ull << 62)

enum operation { WRITE, SEND, READ };
enum kind { DONE = 1, CREDIT, VERIFIED, CORRUPT, FINISHED };

struct plan {
	uint64_t operation, figure, size, depth, span, verify, seed, stag, address;
};

struct note {
	enum kind kind;
	uint64_t value;
};

struct run {
	struct end end;
	struct plan plan;
	struct ibv_pd *pd;
	struct memory span, inbox, notes;
	unsigned notes_out;
};

static size_t put(uint8_t *at, uint64_t value)
{
	size_t length = 0;

	for (; value > 127; value >>= 7)
		at[length++] = (uint8_t)(value | 128);
	at[length++] = (uint8_t)value;
	return length;
}

/* Reads so many numbers behind the version's byte. */
static int get(const struct terms *from, uint64_t *values, int count)
{
	size_t at = 1;

	if (from->length == 0 || from->private_data[0] != VERSION)
		return failed("the private data is not rnic-perf's of version %d", VERSION);
	for (; count > 0; count--, values++) {
		*values = 0;
		for (int shift = 0; ; shift += 7) {
			if (at == from->length || shift > 63)
				return failed("the private data ends too soon");
			*values |= (uint64_t)(from->private_data[at] & 127) << shift;
			if (!(from->private_data[at++] & 128))
				break;
		}
	}
	return 0;
}

static struct terms terms_of(const uint64_t *values, int count)
{
	struct terms terms = { .ird = READS, .ord = READS, .private_data = { VERSION } };
	size_t at = 1;

	for (; count > 0; count--)
		at += put(terms.private_data + at, *values++);
	terms.length = (uint8_t)at;
	return terms;
}

static uint64_t slots(const struct plan *plan)
{
	uint64_t slots = plan->size ? (plan->span + plan->size - 1) / plan->size : 1;

	return slots ? slots : 1;
}

static uint64_t place(const struct plan *plan, uint64_t index, uint64_t *length)
{
	uint64_t offset = index % slots(plan) * plan->size, rest = plan->span - offset;

	*length = rest < plan->size ? rest : plan->size;
	return offset;
}

/* Each receive of the inbox takes a message or a note. */
static uint64_t each(const struct plan *plan)
{
	return plan->size > NOTE ? plan->size : NOTE;
}

static int expect_note(struct run *run, uint64_t index)
{
	return post_receive(&run->end, NOTE_IN | index, &run->notes, index * NOTE, NOTE);
}

static int expect_notes(struct run *run)
{
	for (uint64_t index = 0; index < NOTES; index++)
		if (expect_note(run, index))
			return -1;
	return 0;
}

static int say(struct run *run, enum kind kind, uint64_t value)
{
	uint64_t index = run->notes_out++ % NOTES, big = htobe64(value);
	size_t at = (NOTES + index) * NOTE;

	memset(run->notes.bytes + at, 0, NOTE);
	run->notes.bytes[at] = (char)kind;
	memcpy(run->notes.bytes + at + 1, &big, 8);
	return post_send(&run->end, NOTE_OUT | index, IBV_WR_SEND, IBV_SEND_SOLICITED, &run->notes,
			 at, NOTE, 0, 0);
}

static struct note read_note(const char *at)
{
	uint64_t big;

	memcpy(&big, at + 1, 8);
	return (struct note){ .kind = (enum kind)*at, .value = be64toh(big) };
}

/* The next completion, which has to be a success. */
static int complete(struct run *run, struct ibv_wc *done)
{
	int count = next_completion(&run->end, PATIENCE, done);

	if (count <= 0)
		return count < 0 ? -1 : failed("nothing happened for %d ms", PATIENCE);
	if (done->status != IBV_WC_SUCCESS)
		return failed("work request %llx: %s", (unsigned long long)done->wr_id,
			      ibv_wc_status_str(done->status));
	return 0;
}

/* Whether a completion is a note that came in: 1, its receive posted again. */
static int heard(struct run *run, const struct ibv_wc *done, struct note *note)
{
	if (done->opcode != IBV_WC_RECV || !(done->wr_id & NOTE_IN))
		return 0;
	uint64_t index = done->wr_id & (NOTES - 1);

	if (done->byte_len != NOTE)
		return failed("a note of %u bytes", done->byte_len);
	*note = read_note(run->notes.bytes + index * NOTE);
	return expect_note(run, index) ? -1 : 1;
}

static int listen_for_note(struct run *run, struct note *note)
{
	struct ibv_wc done;
	int found;

	do {
		if (complete(run, &done))
			return -1;
		found = heard(run, &done, note);
	} while (!found);
	return found < 0 ? -1 : 0;
}

/* Everything but the queues: the plan is known. */
static int prepare(struct run *run)
{
	size_t count = run->plan.depth * 2 + 1;

	if (make_memory(&run->span, run->pd, run->plan.span,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) ||
	    make_memory(&run->notes, run->pd, 2 * NOTES * NOTE, IBV_ACCESS_LOCAL_WRITE))
		return -1;
	if (run->plan.operation == SEND &&
	    make_memory(&run->inbox, run->pd, each(&run->plan) * count, IBV_ACCESS_LOCAL_WRITE))
		return -1;
	return 0;
}

static void finish(struct run *run)
{
	destroy(&run->end);
	drop_memory(&run->span);
	drop_memory(&run->inbox);
	drop_memory(&run->notes);
	if (run->pd)
		ibv_dealloc_pd(run->pd);
}

static int expect_message(struct run *run, uint64_t index)
{
	return post_receive(&run->end, index, &run->inbox, index * each(&run->plan),
			    each(&run->plan));
}

/* The server's side of Sends. User space is not told which are solicited, as notes are: the last one
 * says how many messages came. */
static int receive_all(struct run *run, struct note *verdict)
{
	uint64_t messages = 0, verified = 0, again = 0;
	struct ibv_wc done;

	*verdict = (struct note){ .kind = VERIFIED };
	for (;;) {
		if (complete(run, &done))
			return -1;
		if (done.opcode != IBV_WC_RECV)
			continue;
		const char *bytes = run->inbox.bytes + done.wr_id * each(&run->plan);
		struct note note = read_note(bytes);
		uint64_t length, position = place(&run->plan, messages, &length);

		if (done.byte_len == NOTE && note.kind == DONE && note.value == messages)
			break;
		if (run->plan.verify && verdict->kind == VERIFIED) {
			int64_t differs = pattern_differs(run->plan.seed, position, bytes,
							  done.byte_len);

			if (differs >= 0 || done.byte_len != length)
				*verdict = (struct note){ CORRUPT, position };
			verified += length;
		}
		messages++;
		if (expect_message(run, done.wr_id))
			return -1;
		if (++again == run->plan.depth) {
			if (say(run, CREDIT, again))
				return -1;
			again = 0;
		}
	}
	if (verdict->kind == VERIFIED)
		verdict->value = verified;
	if (run->plan.verify)
		return say(run, FINISHED, 0);
	verdict->kind = FINISHED;
	return 0;
}

/* The server's side of Writes and Reads. */
static int wait_and_compare(struct run *run, struct note *verdict)
{
	struct note note;

	if (listen_for_note(run, &note))
		return -1;
	if (note.kind != DONE)
		return failed("the client said %d", note.kind);
	*verdict = (struct note){ .kind = FINISHED };
	if (!run->plan.verify)
		return 0;
	if (say(run, FINISHED, 0))
		return -1;
	verdict->kind = VERIFIED;
	if (run->plan.operation == WRITE) {
		uint64_t bytes = note.value * run->plan.size;

		bytes = bytes < run->plan.span ? bytes : run->plan.span;
		int64_t differs = pattern_differs(run->plan.seed, 0, run->span.bytes, bytes);

		*verdict = differs < 0 ? (struct note){ VERIFIED, bytes } :
					 (struct note){ CORRUPT, (uint64_t)differs };
	}
	return 0;
}

static int serve(struct run *run)
{
	struct plan *plan = &run->plan;
	unsigned receives = plan->operation == SEND ? (unsigned)plan->depth * 2 + 1 : 0;
	struct note verdict;

	if (prepare(run) ||
	    make_queues(&run->end, run->pd, (unsigned)plan->depth + NOTES, receives + NOTES))
		return -1;
	if (plan->operation == READ && plan->verify)
		pattern_fill(plan->seed, 0, run->span.bytes, plan->span);
	for (uint64_t index = 0; index < receives; index++)
		if (expect_message(run, index))
			return -1;
	if (!receives && expect_notes(run))
		return -1;
	uint64_t memory[] = { run->span.mr->rkey, (uintptr_t)run->span.bytes };
	struct terms answer = terms_of(memory, 2);

	if (accept_with(&run->end, &answer) ||
	    (receives ? receive_all : wait_and_compare)(run, &verdict) ||
	    say(run, verdict.kind, verdict.value))
		return -1;
	/* The client closes. */
	enum rdma_cm_event_type type;
	int status;

	if (next_event(&run->end, &type, &status, NULL))
		return -1;
	return type == RDMA_CM_EVENT_DISCONNECTED ? 0 : failed("%s", rdma_event_str(type));
}

static void *serve_alone(void *argument)
{
	struct run *run = argument;

	if (serve(run))
		fprintf(stderr, "siw-verbs: %s\n", problem);
	finish(run);
	free(run);
	return NULL;
}

int serve_perf(const char *address, const char *port)
{
	struct end listener;

	if (listen_at(&listener, address, port)) {
		fprintf(stderr, "siw-verbs: %s\n", problem);
		return 1;
	}
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		struct run *run = calloc(1, sizeof(*run));
		struct terms asked;
		pthread_t thread;

		if (!run || take_request(&listener, &run->end, &asked)) {
			free(run);
			continue;
		}
		run->pd = domain();
		if (!run->pd || get(&asked, &run->plan.operation, 9) ||
		    run->plan.figure != 0 || run->plan.depth > 4096) {
			rdma_reject(run->end.id, "siw-verbs: not this", 19);
			finish(run);
			free(run);
			continue;
		}
		if (!pthread_create(&thread, NULL, serve_alone, run))
			pthread_detach(thread);
	}
}

/* The client's messages: posts them, `depth` outstanding, and no Send for which it has no credit. */
static int send_all(struct run *run, uint64_t count, uint32_t rkey, uint64_t address)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_SEND,
						      IBV_WR_RDMA_READ };
	struct plan *plan = &run->plan;
	uint64_t posted = 0, completed = 0;
	uint64_t credits = plan->operation == SEND ? 2 * plan->depth : UINT64_MAX;

	while (completed < count) {
		struct ibv_wc done;
		struct note note = { 0 };

		while (posted < count && posted - completed < plan->depth && posted < credits) {
			uint64_t length, at = place(plan, posted, &length);

			if (post_send(&run->end, posted, opcodes[plan->operation], 0, &run->span, at,
				      length, rkey, address + at))
				return -1;
			posted++;
		}
		if (complete(run, &done))
			return -1;
		int found = heard(run, &done, &note);

		if (found < 0)
			return -1;
		if (found && note.kind != CREDIT)
			return failed("the server said %d", note.kind);
		if (found)
			credits += note.value;
		else
			completed++;
	}
	return 0;
}

static int measure(struct run *run, const char *address, const char *port, uint64_t count)
{
	struct plan *plan = &run->plan;
	struct terms asks, answer;
	struct note note;
	uint64_t memory[2];

	run->pd = domain();
	if (!run->pd || prepare(run) || resolve(&run->end, address, port) ||
	    make_queues(&run->end, run->pd, (unsigned)plan->depth + NOTES, NOTES + 2) ||
	    expect_notes(run))
		return -1;
	if (plan->operation != READ)
		pattern_fill(plan->seed, 0, run->span.bytes, plan->span);
	plan->stag = run->span.mr->rkey;
	plan->address = (uintptr_t)run->span.bytes;
	asks = terms_of(&plan->operation, 9);
	if (connect_with(&run->end, &asks, &answer) || get(&answer, memory, 2) ||
	    send_all(run, count, (uint32_t)memory[0], memory[1]) || say(run, DONE, count))
		return -1;
	do
		if (listen_for_note(run, &note))
			return -1;
	while (note.kind == CREDIT);
	if (note.kind != FINISHED || listen_for_note(run, &note) || note.kind != VERIFIED)
		return failed("the server's verdict is %d: %llu", note.kind,
			      (unsigned long long)note.value);
	if (plan->operation == READ) {
		int64_t differs = pattern_differs(plan->seed, 0, run->span.bytes, plan->span);

		if (differs >= 0)
			return failed("byte %lld differs", (long long)differs);
	}
	rdma_disconnect(run->end.id);
	return 0;
}

int run_perf(char **words)
{
	struct run run = { .plan = { .verify = 1, .seed = 0x51f } };
	uint64_t count = strtoull(words[5], NULL, 10);

	run.plan.operation = *words[2] == 'w' ? WRITE : *words[2] == 's' ? SEND : READ;
	run.plan.size = strtoull(words[3], NULL, 10);
	run.plan.depth = strtoull(words[4], NULL, 10);
	run.plan.span = run.plan.size * count;
	int error = measure(&run, words[0], words[1], count);

	if (error)
		fprintf(stderr, "siw-verbs: %s\n", problem);
	else
		printf("%llu messages of %llu bytes verified\n", (unsigned long long)count,
		       (unsigned long long)run.plan.size);
	finish(&run);
	return error ? 1 : 0;
}
