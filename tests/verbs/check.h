/* For programs that check what the verbs promise. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(truth)                                                                     \
	do {                                                                             \
		if (!(truth)) {                                                          \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #truth, errno); \
			exit(1);                                                         \
		}                                                                        \
	} while (0)
