/* A listening rsocket connects its peers as TCP's backlog does: rconnect(3) returns, and data goes, before the
   program accepts. Both ends are in one thread. Argument: an address of this host. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { PEERS = 4 };
static struct sockaddr_in address = { .sin_family = AF_INET };

static int listening(uint16_t port)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);

	address.sin_port = htons(port);
	CHECK(listener >= 0 && !rbind(listener, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!rlisten(listener, PEERS));
	return listener;
}

static int connected(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK(socket >= 0 && !rconnect(socket, (struct sockaddr *)&address, sizeof(address)));
	return socket;
}

/* A server that reads from the first before it accepts the second, as iperf's does. */
static void check_peers_that_wait(void)
{
	int listener = listening(7473), clients[PEERS], servers[PEERS];
	struct pollfd fd = { .fd = listener, .events = POLLIN };
	struct sockaddr_in peer, own;
	socklen_t length = sizeof(peer);
	char number;

	CHECK(rpoll(&fd, 1, 0) == 0);
	for (int at = 0; at < PEERS; at++) {
		clients[at] = connected();
		CHECK(rsend(clients[at], &(char){ at }, 1, 0) == 1);
	}
	CHECK(rpoll(&fd, 1, 5000) == 1 && fd.revents == POLLIN);
	/* What is accepted has the options that the listener has now. */
	CHECK(!rfcntl(listener, F_SETFL, O_NONBLOCK));
	servers[0] = raccept(listener, (struct sockaddr *)&peer, &length);
	CHECK(servers[0] >= 0 && rfcntl(servers[0], F_GETFL) & O_NONBLOCK);
	CHECK(!rfcntl(listener, F_SETFL, 0) && !rfcntl(servers[0], F_SETFL, 0));
	CHECK(!rgetsockname(clients[0], (struct sockaddr *)&own, &length) && own.sin_port == peer.sin_port);
	for (int at = 0; at < PEERS; at++) {
		if (at)
			CHECK((servers[at] = raccept(listener, NULL, NULL)) >= 0);
		CHECK(rrecv(servers[at], &number, 1, 0) == 1 && number == at);
		CHECK(rsend(servers[at], &number, 1, 0) == 1);
		CHECK(rrecv(clients[at], &number, 1, 0) == 1 && number == at);
		CHECK(!rclose(servers[at]) && rrecv(clients[at], &number, 1, 0) == 0 && !rclose(clients[at]));
	}
	CHECK(!rclose(listener));
}

/* One that has said all and closed is read to its end. */
static void check_peer_that_went(void)
{
	int listener = listening(7474), client = connected(), server;
	char text[8];

	CHECK(rsend(client, "all", 3, 0) == 3 && !rshutdown(client, SHUT_WR));
	CHECK((server = raccept(listener, NULL, NULL)) >= 0);
	CHECK(rrecv(server, text, sizeof(text), MSG_WAITALL) == 3 && !memcmp(text, "all", 3));
	CHECK(!rclose(server) && !rclose(client) && !rclose(listener));
}

/* A listener that closes takes with it who waits. */
static void check_listener_that_closes(void)
{
	int listener = listening(7475), client = connected();
	char byte;

	CHECK(!rclose(listener) && rrecv(client, &byte, 1, 0) <= 0);
	CHECK(!rclose(client));
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == -1 && errno == ECONNREFUSED);
	CHECK(!rclose(client));
}

/* Options that programs of ordinary sockets set whatever comes of it: they fail, and nobody is told. */
static void check_options(void)
{
	static const int names[] = { SO_REUSEPORT, SO_RCVTIMEO, SO_SNDTIMEO, SO_TIMESTAMP };
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);
	struct timeval value = { .tv_sec = 1 };
	socklen_t length = sizeof(value);

	for (size_t at = 0; at < sizeof(names) / sizeof(*names); at++) {
		CHECK(rsetsockopt(socket, SOL_SOCKET, names[at], &value, sizeof(value)) == -1);
		CHECK(errno == EOPNOTSUPP);
		CHECK(rgetsockopt(socket, SOL_SOCKET, names[at], &value, &length) == -1 && errno == EOPNOTSUPP);
	}
	CHECK(!rclose(socket));
}

int main(int count, char **arguments)
{
	CHECK(count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	check_peers_that_wait();
	check_peer_that_went();
	check_listener_that_closes();
	check_options();
	return 0;
}
