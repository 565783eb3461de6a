/* Two MPI ranks that exchange messages of one byte to 4 MiB, all bytes of which are compared; then a sum of both.
   An unmodified program of MPI: mpicc builds it, mpirun starts it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 4 << 20, ROUNDS = 10, TAG = 7 };

/* What is at a place of a message. */
static unsigned char byte_at(int place, int size, int round, int rank)
{
	return (unsigned char)(place * 31 + (place >> 8) + size + round * 7 + rank * 101);
}

static void exchange(int size, int round, int rank, unsigned char *sent, unsigned char *received)
{
	MPI_Request both[2];

	for (int place = 0; place < size; place++) {
		sent[place] = byte_at(place, size, round, rank);
		received[place] = 0;
	}
	MPI_Irecv(received, size, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, &both[0]);
	MPI_Isend(sent, size, MPI_BYTE, !rank, TAG, MPI_COMM_WORLD, &both[1]);
	MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
	for (int place = 0; place < size; place++)
		if (received[place] != byte_at(place, size, round, !rank)) {
			fprintf(stderr, "rank %d: byte %d of %d is wrong in round %d\n", rank, place, size, round);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

int main(int argc, char **argv)
{
	int rank, ranks, sum, one;
	unsigned char *sent = malloc(LARGEST), *received = malloc(LARGEST);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || !sent || !received)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int size = 1; size <= LARGEST; size *= 4)
		for (int round = 0; round < ROUNDS; round++)
			exchange(size, round, rank, sent, received);
	one = rank + 1;
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("all bytes are right, the sum is %d\n", sum);
	MPI_Finalize();
	return sum != 3;
}
