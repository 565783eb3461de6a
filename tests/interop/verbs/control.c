/* siw-verbs control PORT: verbs by a line of text each, for tests that say what this end does.
 *
 * Each TCP connection is a process of its own; all that it made goes with it. A line is answered by
 * a line, which begins with `ok`, or with `failed` and a sentence. Queue pairs (Q) and memories (M)
 * have numbers below 16. Numbers are decimal; private data is in hexadecimal, `-` when there is none.
 *
 *   memory M BYTES ACCESS         -> ok RKEY ADDRESS    ACCESS: letters of l(ocal write), r(ead), w(rite)
 *   fill M SEED POSITION AT BYTES -> ok
 *   check M SEED POSITION AT BYTES-> ok, or failed with where it differs from the pattern
 *   listen ADDRESS PORT            -> ok
 *   request Q                      -> ok IRD ORD PRIVATE of the peer
 *   resolve Q ADDRESS PORT         -> ok
 *   queues Q SENDS RECEIVES        -> ok
 *   accept Q IRD ORD PRIVATE       -> ok
 *   reject Q PRIVATE               -> ok
 *   connect Q IRD ORD PRIVATE      -> ok IRD ORD PRIVATE of the peer; or failed, EVENT, and ` said PRIVATE`
 *   receive Q ID M AT BYTES       -> ok
 *   send|solicit Q ID M AT BYTES  -> ok
 *   write|read Q ID M AT BYTES RKEY ADDRESS -> ok
 *   done Q                         -> ok ID OPCODE STATUS BYTES
 *   event Q                        -> ok EVENT
 *   disconnect Q                   -> ok
 *   destroy Q                      -> ok
 */
#include "verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OBJECTS 16
#define WORDS 10

static struct ibv_pd *pd;
static struct end listener, ends[OBJECTS];
static struct memory memories[OBJECTS];
static char reply[1024];

static uint64_t number(const char *word)
{
	return strtoull(word, NULL, 10);
}

static struct end *end_of(char **words)
{
	return &ends[number(words[1]) % OBJECTS];
}

static struct memory *memory_at(const char *word)
{
	return &memories[number(word) % OBJECTS];
}

/* Whether bytes AT, BYTES (two words) are in a memory that is there. */
static int within(const struct memory *memory, char **words)
{
	uint64_t at = number(words[0]), bytes = number(words[1]);

	if (!memory->mr || at > memory->length || bytes > memory->length - at)
		return failed("no such bytes");
	return 0;
}

static int with_queues(const struct end *end)
{
	return end->id && end->id->qp ? 0 : failed("no such queue pair");
}

static void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void answer(const char *format, ...)
{
	va_list more;

	va_start(more, format);
	vsnprintf(reply, sizeof(reply), format, more);
	va_end(more);
}

static const char *show_private(const struct terms *terms)
{
	static char text[2 * sizeof(terms->private_data) + 1];

	if (!terms->length)
		return "-";
	for (int i = 0; i < terms->length; i++)
		sprintf(text + 2 * i, "%02x", terms->private_data[i]);
	return text;
}

static int read_private(const char *word, struct terms *terms)
{
	size_t length = strcmp(word, "-") ? strlen(word) / 2 : 0;

	if (length > sizeof(terms->private_data))
		return failed("librdmacm takes %zu bytes of private data",
			      sizeof(terms->private_data));
	terms->length = (uint8_t)length;
	for (size_t i = 0; i < length; i++)
		if (sscanf(word + 2 * i, "%2hhx", &terms->private_data[i]) != 1)
			return failed("no hexadecimal");
	return 0;
}

static int read_terms(char **words, struct terms *terms)
{
	terms->ird = (uint8_t)number(words[2]);
	terms->ord = (uint8_t)number(words[3]);
	return read_private(words[4], terms);
}

static int do_memory(char **words)
{
	struct memory *memory = memory_at(words[1]);
	int access = 0;

	for (const char *letter = words[3]; *letter; letter++)
		access |= *letter == 'l' ? IBV_ACCESS_LOCAL_WRITE :
			  *letter == 'r' ? IBV_ACCESS_REMOTE_READ :
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	drop_memory(memory);
	if (make_memory(memory, pd, number(words[2]), access))
		return -1;
	answer("ok %u %llu", memory->mr->rkey, (unsigned long long)(uintptr_t)memory->bytes);
	return 0;
}

static int do_fill(char **words)
{
	struct memory *memory = memory_at(words[1]);

	if (within(memory, words + 4))
		return -1;
	pattern_fill(number(words[2]), number(words[3]), memory->bytes + number(words[4]),
		     number(words[5]));
	return 0;
}

static int do_check(char **words)
{
	struct memory *memory = memory_at(words[1]);

	if (within(memory, words + 4))
		return -1;
	int64_t differs = pattern_differs(number(words[2]), number(words[3]),
					  memory->bytes + number(words[4]), number(words[5]));

	return differs < 0 ? 0 : failed("byte %lld differs", (long long)differs);
}

static int do_listen(char **words)
{
	destroy(&listener);
	return listen_at(&listener, words[1], words[2]);
}

static int do_request(char **words)
{
	struct terms asked;

	if (!listener.id)
		return failed("nothing listens");
	destroy(end_of(words));
	if (take_request(&listener, end_of(words), &asked))
		return -1;
	answer("ok %u %u %s", asked.ird, asked.ord, show_private(&asked));
	return 0;
}

static int do_resolve(char **words)
{
	destroy(end_of(words));
	return resolve(end_of(words), words[2], words[3]);
}

static int do_queues(char **words)
{
	struct end *end = end_of(words);

	if (!end->id || end->id->qp)
		return failed("no connection to come without queues");
	return make_queues(end, pd, (unsigned)number(words[2]), (unsigned)number(words[3]));
}

static int do_accept(char **words)
{
	struct terms terms;

	if (with_queues(end_of(words)) || read_terms(words, &terms))
		return -1;
	return accept_with(end_of(words), &terms);
}

static int do_reject(char **words)
{
	struct terms terms;
	struct end *end = end_of(words);

	if (!end->id || read_private(words[2], &terms))
		return -1;
	return rdma_reject(end->id, terms.private_data, terms.length) ?
		       failed("rdma_reject: %s", strerror(errno)) : 0;
}

static int do_connect(char **words)
{
	struct terms terms, said;

	if (with_queues(end_of(words)) || read_terms(words, &terms))
		return -1;
	if (connect_with(end_of(words), &terms, &said)) {
		answer("failed %s said %s", problem, show_private(&said));
		return 0;
	}
	answer("ok %u %u %s", said.ird, said.ord, show_private(&said));
	return 0;
}

static int do_receive(char **words)
{
	struct memory *memory = memory_at(words[3]);

	if (with_queues(end_of(words)) || within(memory, words + 4))
		return -1;
	return post_receive(end_of(words), number(words[2]), memory, number(words[4]),
			    number(words[5]));
}

static int do_work(char **words)
{
	struct memory *memory = memory_at(words[3]);
	enum ibv_wr_opcode opcode = *words[0] == 'w' ? IBV_WR_RDMA_WRITE :
				    *words[0] == 'r' ? IBV_WR_RDMA_READ : IBV_WR_SEND;
	int tagged = opcode != IBV_WR_SEND;

	if (with_queues(end_of(words)) || within(memory, words + 4))
		return -1;
	return post_send(end_of(words), number(words[2]), opcode,
			 strcmp(words[0], "solicit") ? 0 : IBV_SEND_SOLICITED, memory,
			 number(words[4]), number(words[5]),
			 tagged ? (uint32_t)number(words[6]) : 0, tagged ? number(words[7]) : 0);
}

static int do_done(char **words)
{
	static const char *const opcodes[] = { [IBV_WC_SEND] = "send", [IBV_WC_RDMA_WRITE] = "write",
					       [IBV_WC_RDMA_READ] = "read" };
	struct ibv_wc done;

	if (with_queues(end_of(words)))
		return -1;
	int count = next_completion(end_of(words), PATIENCE, &done);

	if (count <= 0)
		return count < 0 ? count : failed("no completion within %d ms", PATIENCE);
	/* "Work Request Flushed Error" is one word. */
	char status[80];

	snprintf(status, sizeof(status), "%s", ibv_wc_status_str(done.status));
	for (char *at = status; *at; at++)
		if (*at == ' ')
			*at = '-';
	answer("ok %llu %s %s %u", (unsigned long long)done.wr_id,
	       done.opcode == IBV_WC_RECV ? "receive" :
	       done.opcode <= IBV_WC_RDMA_READ ? opcodes[done.opcode] : "other",
	       status, done.byte_len);
	return 0;
}

static int do_event(char **words)
{
	enum rdma_cm_event_type type;
	int status;

	if (!end_of(words)->id)
		return failed("no such connection");
	if (next_event(end_of(words), &type, &status, NULL))
		return -1;
	answer("ok %s", rdma_event_str(type));
	return 0;
}

static int do_disconnect(char **words)
{
	if (!end_of(words)->id)
		return failed("no such connection");
	return rdma_disconnect(end_of(words)->id) ? failed("rdma_disconnect: %s", strerror(errno)) : 0;
}

static int do_destroy(char **words)
{
	destroy(end_of(words));
	return 0;
}

static const struct {
	const char *name;
	int words;
	int (*act)(char **words);
} orders[] = {
	{ "memory", 4, do_memory }, { "fill", 6, do_fill }, { "check", 6, do_check },
	{ "listen", 3, do_listen }, { "request", 2, do_request }, { "resolve", 4, do_resolve },
	{ "queues", 4, do_queues }, { "accept", 5, do_accept }, { "reject", 3, do_reject },
	{ "connect", 5, do_connect }, { "receive", 6, do_receive }, { "send", 6, do_work },
	{ "solicit", 6, do_work }, { "write", 8, do_work }, { "read", 8, do_work },
	{ "done", 2, do_done }, { "event", 2, do_event }, { "disconnect", 2, do_disconnect },
	{ "destroy", 2, do_destroy },
};

static int act(char *line)
{
	char *words[WORDS + 1];
	int count = 0;

	for (char *word = strtok(line, " \r\n"); word && count < WORDS; word = strtok(NULL, " \r\n"))
		words[count++] = word;
	for (size_t i = 0; count && i < sizeof(orders) / sizeof(orders[0]); i++)
		if (!strcmp(orders[i].name, words[0]) && orders[i].words == count)
			return orders[i].act(words);
	return failed("no such order");
}

static int obey(int fd)
{
	FILE *in = fdopen(fd, "r");
	char line[1024];

	pd = domain();
	while (in && fgets(line, sizeof(line), in)) {
		strcpy(reply, "ok");
		if (!pd || act(line))
			answer("failed %s", problem);
		if (dprintf(fd, "%s\n", reply) < 0)
			break;
	}
	return 0;
}

int serve_control(const char *port)
{
	int one = 1, fd = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port)) };

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&any, sizeof(any)) || listen(fd, 16)) {
		perror("siw-verbs: control");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		int client = accept(fd, NULL, NULL);

		if (client < 0)
			continue;
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (!fork())
			exit(obey(client));
		close(client);
	}
}
