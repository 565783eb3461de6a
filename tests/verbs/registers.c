/*
 * What registers: memory of each kind, to be written by peers and to be read only. A line for each kind: its name, then
 * the results, 0 or an errno. The same program runs over Linux's siw.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096

static struct ibv_pd *pd;

static int registers(void *start, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, start, len, access);

	if (!mr)
		return errno;
	CHECK(!ibv_dereg_mr(mr));
	return 0;
}

static void row(const char *name, void *start, size_t len)
{
	int written = registers(start, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	int local = registers(start, len, IBV_ACCESS_LOCAL_WRITE);
	int read = registers(start, len, IBV_ACCESS_REMOTE_READ);
	int source = registers(start, len, 0);

	/* The right to write is one, whoever writes; so is that to read. */
	CHECK(written == local && read == source);
	printf("%s: %d %d\n", name, written, read);
}

static char *mapped(size_t len, int protection, int flags, int file)
{
	char *start = mmap(NULL, len, protection, flags, file, 0);

	CHECK(start != MAP_FAILED);
	return start;
}

/* Anonymous private memory that was written, with other rights since. */
static char *once_written(int protection)
{
	char *start = mapped(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	*start = 1;
	CHECK(!mprotect(start, PAGE, protection));
	return start;
}

/* The same mappings of each kind of file, which has one page. */
static void rows_of_file(const char *kind, int file)
{
	static const struct {
		const char *name;
		int protection, flags;
	} mappings[] = {
		{ "shared", PROT_READ | PROT_WRITE, MAP_SHARED },
		{ "shared, mapped read-only", PROT_READ, MAP_SHARED },
		{ "private", PROT_READ | PROT_WRITE, MAP_PRIVATE },
		{ "private, mapped read-only", PROT_READ, MAP_PRIVATE },
		{ "shared, no right", PROT_NONE, MAP_SHARED },
	};
	char name[100];

	CHECK(file >= 0 && !ftruncate(file, PAGE));
	for (size_t i = 0; i < sizeof(mappings) / sizeof(*mappings); i++) {
		char *start = mapped(2 * PAGE, mappings[i].protection, mappings[i].flags, file);

		snprintf(name, sizeof(name), "%s %s", kind, mappings[i].name);
		row(name, start, PAGE);
		snprintf(name, sizeof(name), "%s %s, past its end", kind, mappings[i].name);
		row(name, start, 2 * PAGE);
		CHECK(!munmap(start, 2 * PAGE));
	}
	CHECK(!close(file));
}

/* Where the kernel has mapped its own for this process. */
static void row_of_kernel(const char *name)
{
	char line[500];
	unsigned long start;
	FILE *maps = fopen("/proc/self/maps", "r");

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, name) && sscanf(line, "%lx-", &start) == 1) {
			row(name, (void *)start, PAGE);
			break;
		}
	fclose(maps);
}

int main(void)
{
	static int data[100] = { 1 }, zeroed[PAGE];
	static const int constant[100] = { 1 };
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;
	char stack[100] = "", path[] = "/tmp/registersXXXXXX";
	char *hole, *heap = malloc(100);
	int file;

	CHECK(devices && devices[0] && (context = ibv_open_device(devices[0])) && (pd = ibv_alloc_pd(context)));
	row("address 0", NULL, PAGE);
	row("far away", (void *)(1UL << 50), PAGE);
	hole = mapped(3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(!munmap(hole + PAGE, PAGE));
	row("a hole in it", hole, 3 * PAGE);
	row("before a hole", hole, PAGE);
	row("anonymous", mapped(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), PAGE);
	row("anonymous, read-only", mapped(PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1), PAGE);
	row("anonymous, read-only since", once_written(PROT_READ), PAGE);
	row("anonymous, no right", mapped(PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1), PAGE);
	row("anonymous, no right since", once_written(PROT_NONE), PAGE);
	row("anonymous, shared", mapped(PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1), PAGE);
	row("anonymous, shared, read-only", mapped(PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1), PAGE);
	row("heap", heap, 100);
	row("stack", stack, sizeof(stack));
	row(".data", data, sizeof(data));
	row(".bss", zeroed, sizeof(zeroed));
	row(".rodata", (void *)constant, sizeof(constant));
	row("text", (void *)main, 64);
	row_of_kernel("[vdso]");
	row_of_kernel("[vvar]");
	row("device /dev/zero", mapped(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, open("/dev/zero", O_RDWR)), PAGE);
	rows_of_file("memfd", memfd_create("registers", 0));
	rows_of_file("/dev/shm", open("/dev/shm", O_TMPFILE | O_RDWR, 0600));
	file = mkstemp(path);
	CHECK(file >= 0 && !unlink(path));
	rows_of_file("file", file);
	return 0;
}
