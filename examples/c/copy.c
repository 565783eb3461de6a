/*
 * Copies a file to another host: the receiver gets it by RDMA Reads. Built with -lrdmacm -libverbs.
 *
 *	copy receive 198.18.0.2 7475 COPY
 *	copy send 198.18.0.2 7475 FILE
 *
 * The sender registers its file for remote reading and Sends an offer: where it is, how long it is, and its CRC-32.
 * The receiver Reads it piece by piece, writes it to the disk, and Sends back the length and the CRC-32 of what
 * it has. The sender compares. copy.py speaks the same.
 */
#include <endian.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 };

/* Both are big-endian on the wire. */
struct offer {
	uint64_t address, length;
	uint32_t rkey, crc;
};
struct answer {
	uint64_t length;
	uint32_t crc, unused;
};

/* Ends the program unless `call` succeeded. Calls of rdma_cm and verbs return -1 or NULL and set errno. */
#define MUST(call) ((call) ? (void)0 : fail(#call))

static void fail(const char *what)
{
	fprintf(stderr, "copy: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

/* The CRC-32 of zlib, of what came before and these bytes. */
static uint32_t crc32(uint32_t crc, const unsigned char *bytes, size_t length)
{
	crc = ~crc;
	while (length--) {
		crc ^= *bytes++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* Waits for one piece of work of the send queue or, if `received`, for a message. */
static void complete(struct rdma_cm_id *id, int received)
{
	struct ibv_wc wc;
	int count = received ? rdma_get_recv_comp(id, &wc) : rdma_get_send_comp(id, &wc);

	MUST(count == 1);
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "copy: %s failed: %s\n", received ? "a receive" : "work", ibv_wc_status_str(wc.status));
		exit(EXIT_FAILURE);
	}
}

/* An endpoint with a queue pair, or one that listens. */
static struct rdma_cm_id *endpoint(const char *host, const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *id;

	MUST(!rdma_getaddrinfo(host, port, &hints, &found));
	MUST(!rdma_create_ep(&id, found, NULL, &attributes));
	rdma_freeaddrinfo(found);
	return id;
}

static int receive(const char *host, const char *port, const char *name)
{
	struct rdma_cm_id *listener = endpoint(host, port, RAI_PASSIVE), *id;
	struct offer offer;
	struct answer answer = { 0 };
	struct ibv_mr *offers, *answers, *pieces;
	unsigned char *piece = malloc(PIECE);
	FILE *file = fopen(name, "wb");
	uint64_t length, done = 0;
	uint32_t crc = 0;

	MUST(piece && file);
	MUST(!rdma_listen(listener, 1));
	MUST(!rdma_get_request(listener, &id));
	MUST((offers = rdma_reg_msgs(id, &offer, sizeof(offer))));
	MUST((answers = rdma_reg_msgs(id, &answer, sizeof(answer))));
	MUST((pieces = rdma_reg_msgs(id, piece, PIECE)));
	/* Posted before the connection is accepted, so that no message comes too early. */
	MUST(!rdma_post_recv(id, NULL, &offer, sizeof(offer), offers));
	MUST(!rdma_accept(id, NULL));
	complete(id, 1);

	length = be64toh(offer.length);
	while (done < length) {
		size_t next = length - done < PIECE ? length - done : PIECE;

		MUST(!rdma_post_read(id, NULL, piece, next, pieces, 0, be64toh(offer.address) + done, be32toh(offer.rkey)));
		complete(id, 0);
		MUST(fwrite(piece, 1, next, file) == next);
		crc = crc32(crc, piece, next);
		done += next;
	}
	MUST(!fclose(file));
	answer.length = htobe64(done);
	answer.crc = htobe32(crc);
	MUST(!rdma_post_send(id, NULL, &answer, sizeof(answer), answers, 0));
	complete(id, 0);
	printf("received %llu bytes, CRC-32 %08x\n", (unsigned long long)done, crc);

	MUST(!rdma_disconnect(id));
	MUST(!rdma_dereg_mr(offers) && !rdma_dereg_mr(answers) && !rdma_dereg_mr(pieces));
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	free(piece);
	return crc == be32toh(offer.crc) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* All of a file; at least one byte of memory, so that it can be registered. */
static unsigned char *content(const char *name, size_t *length)
{
	FILE *file = fopen(name, "rb");
	unsigned char *bytes;
	long end;

	MUST(file && !fseek(file, 0, SEEK_END) && (end = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET));
	MUST((bytes = calloc(1, end + 1)) && fread(bytes, 1, end, file) == (size_t)end);
	MUST(!fclose(file));
	*length = end;
	return bytes;
}

static int send_file(const char *host, const char *port, const char *name)
{
	struct rdma_cm_id *id = endpoint(host, port, 0);
	size_t length;
	unsigned char *bytes = content(name, &length);
	uint32_t crc = crc32(0, bytes, length);
	struct offer offer;
	struct answer answer;
	struct ibv_mr *offers, *answers, *file;
	int same;

	MUST((file = rdma_reg_read(id, bytes, length + 1)));
	MUST((offers = rdma_reg_msgs(id, &offer, sizeof(offer))));
	MUST((answers = rdma_reg_msgs(id, &answer, sizeof(answer))));
	MUST(!rdma_post_recv(id, NULL, &answer, sizeof(answer), answers));
	MUST(!rdma_connect(id, NULL));

	offer = (struct offer){
		.address = htobe64((uintptr_t)bytes),
		.length = htobe64(length),
		.rkey = htobe32(file->rkey),
		.crc = htobe32(crc),
	};
	MUST(!rdma_post_send(id, NULL, &offer, sizeof(offer), offers, 0));
	complete(id, 0);
	complete(id, 1);
	same = be64toh(answer.length) == length && be32toh(answer.crc) == crc;
	if (same)
		printf("sent %zu bytes, CRC-32 %08x\n", length, crc);
	else
		fprintf(stderr, "copy: the receiver has other bytes than were sent\n");

	MUST(!rdma_disconnect(id));
	MUST(!rdma_dereg_mr(file) && !rdma_dereg_mr(offers) && !rdma_dereg_mr(answers));
	rdma_destroy_ep(id);
	free(bytes);
	return same ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && !strcmp(argv[1], "receive"))
		return receive(argv[2], argv[3], argv[4]);
	if (argc == 5 && !strcmp(argv[1], "send"))
		return send_file(argv[2], argv[3], argv[4]);
	fprintf(stderr, "usage: copy receive|send ADDRESS PORT FILE\n");
	return EXIT_FAILURE;
}
