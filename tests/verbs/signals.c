/* A program that takes a signal by signalfd(2) blocks it in its threads, as tgtd does. It knows nothing of the
   threads of the library, or of the RNIC in it: those have blocked it from the beginning. Argument: an address
   of this host. */
#include "check.h"
#include <dirent.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* What the kernel sends to a thread because of what that did. */
static const int OF_THE_THREAD[] = { SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP };

/* Of a thread, as /proc has them: from signal 1 on, a bit each. */
static unsigned long long blocked(const char *thread)
{
	unsigned long long mask = 0;
	char line[256];
	FILE *status;

	snprintf(line, sizeof(line), "/proc/self/task/%s/status", thread);
	CHECK((status = fopen(line, "r")));
	while (fgets(line, sizeof(line), status) && sscanf(line, "SigBlk: %llx", &mask) != 1)
		;
	fclose(status);
	return mask;
}

/* How many threads there are beside this one, all with the program's signals blocked. */
static int others(void)
{
	unsigned long long own = 0;
	struct dirent *thread;
	DIR *threads;
	int count = 0;

	for (size_t at = 0; at < sizeof(OF_THE_THREAD) / sizeof(*OF_THE_THREAD); at++)
		own |= 1ULL << (OF_THE_THREAD[at] - 1);
	CHECK((threads = opendir("/proc/self/task")));
	while ((thread = readdir(threads))) {
		unsigned long long mask;

		if (*thread->d_name == '.' || atoi(thread->d_name) == getpid())
			continue;
		mask = blocked(thread->d_name);
		for (int number = 1; number < SIGRTMAX; number++) {
			unsigned long long bit = 1ULL << (number - 1);
			/* The thread library keeps two for itself. */
			int never = number == SIGKILL || number == SIGSTOP || (number > 31 && number < SIGRTMIN);

			if (!never && !(mask & bit) != !!(own & bit))
				fprintf(stderr, "thread %s: signal %d\n", thread->d_name, number);
			CHECK(never || !(mask & bit) == !!(own & bit));
		}
		count++;
	}
	closedir(threads);
	return count;
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct signalfd_siginfo info;
	struct rdma_cm_id *listener;
	sigset_t signals;
	int fd;

	CHECK(channel && count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 1));
	sigemptyset(&signals);
	CHECK(!sigismember(&signals, SIGUSR2));
	sigaddset(&signals, SIGUSR2);
	CHECK(!sigprocmask(SIG_BLOCK, &signals, NULL));
	CHECK((fd = signalfd(-1, &signals, 0)) >= 0);
	CHECK(others() > 0);
	CHECK(!kill(getpid(), SIGUSR2));
	CHECK(read(fd, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR2);
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return 0;
}
