/* Memory that an rsocket maps for its peer, and that the peer writes to (riomap, riowrite of rsocket(7)). Both ends are
   in this program. Argument: an address of this host. */
#include "check.h"
#include <rdma/rsocket.h>
#include <sys/mman.h>

enum { SIZE = 64, AT = 1000, LONG = 100 };
/* Not side by side. */
static char memory[3 * SIZE];

/* What was written before a byte is there when the byte is. */
static void follow(int from, int to)
{
	char byte;

	CHECK(rsend(from, "x", 1, 0) == 1 && rrecv(to, &byte, 1, 0) == 1);
}

static int is_filled(const char *from, char with, int bytes)
{
	while (bytes && *from == with)
		from++, bytes--;
	return !bytes;
}

/* With a table of what its peer may map. */
static int made(void)
{
	int made = rsocket(AF_INET, SOCK_STREAM, 0), entries = 2;

	CHECK(made >= 0 && !rsetsockopt(made, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)));
	return made;
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7477) };
	int listener = made(), writer = made(), owner;
	char *first = memory, *second = memory + 2 * SIZE, text[LONG];

	CHECK(count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	CHECK(!rbind(listener, (struct sockaddr *)&address, sizeof(address)) && !rlisten(listener, 1));
	CHECK(!rconnect(writer, (struct sockaddr *)&address, sizeof(address)));
	CHECK((owner = raccept(listener, NULL, NULL)) >= 0);
	/* One follows the other in the peer's eyes. */
	CHECK(riomap(owner, first, SIZE, PROT_WRITE, 0, AT) == AT);
	CHECK(riomap(owner, second, SIZE, PROT_WRITE, 0, AT + SIZE) == AT + SIZE);
	follow(owner, writer);

	memset(text, 'p', sizeof(text));
	CHECK(riowrite(writer, text, 10, AT, 0) == 10);
	follow(writer, owner);
	CHECK(is_filled(first, 'p', 10) && is_filled(first + 10, 0, SIZE - 10));
	/* What does not fit into one goes on in the next, and ends with that. */
	memset(text, 'q', sizeof(text));
	CHECK(riowrite(writer, text, LONG, AT + 10, 0) == LONG);
	CHECK(riowrite(writer, text, LONG, AT + 2 * SIZE - 1, 0) == 1);
	follow(writer, owner);
	CHECK(is_filled(first, 'p', 10) && is_filled(first + 10, 'q', SIZE - 10));
	CHECK(is_filled(memory + SIZE, 0, SIZE) && is_filled(second, 'q', LONG - SIZE + 10));
	CHECK(is_filled(second + LONG - SIZE + 10, 0, 2 * SIZE - LONG - 11) && second[SIZE - 1] == 'q');
	CHECK(riowrite(writer, text, 1, AT + 2 * SIZE, 0) == -1 && errno == EINVAL);
	CHECK(!riounmap(owner, first, SIZE) && !riounmap(owner, second, SIZE));
	CHECK(!rclose(writer) && !rclose(owner) && !rclose(listener));
	return 0;
}
