/* siw-verbs: the peer's end of the interop tests, for messages that no stock tool of rdma-core sends.
 *
 *   siw-verbs control PORT                            verbs by lines of text: control.c
 *   siw-verbs server ADDRESS PORT                     serves clients of rnic-perf: perf.c
 *   siw-verbs client ADDRESS PORT OPERATION SIZE DEPTH MESSAGES
 *                                                     a client of rnic-perf's server: perf.c
 */
#include "verbs.h"

#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{
	if (count == 3 && !strcmp(words[1], "control"))
		return serve_control(words[2]);
	if (count == 4 && !strcmp(words[1], "server"))
		return serve_perf(words[2], words[3]);
	if (count == 8 && !strcmp(words[1], "client"))
		return run_perf(words + 2);
	fprintf(stderr, "use: siw-verbs control PORT | server ADDRESS PORT |\n"
			"     client ADDRESS PORT write|send|read SIZE DEPTH MESSAGES\n");
	return 2;
}
