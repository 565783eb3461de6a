/* Looks symbols up as programs do that load the library themselves: dlopen and dlvsym. The arguments are
   the library; standard input has a symbol and its version in each line. Prints those that are missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
	char name[128], version[64];
	int missing = 0;
	void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	while (scanf("%127s %63s", name, version) == 2) {
		if (!dlvsym(library, name, version)) {
			printf("%s@%s\n", name, version);
			missing = 1;
		}
	}
	return missing;
}
