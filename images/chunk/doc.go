// Package chunk is the form in which disk images are kept and travel: the contract between import, boot listener and agent.
//
// # Form
//
// A raw image is cut into chunks of 16 to 256 KiB, 64 KiB on average. Chunks start at multiples of 4 KiB and are multiples
// of it long (Block). A chunk ends after the first block, from 16 KiB on, whose xxHash64 has four zero bits at its end;
// or before a run of 16 KiB of zeros; or at 256 KiB. Blocks of zeros at either end of a chunk are dropped: what no chunk
// covers is zero. Where chunks end is an import's affair alone: a later build may cut otherwise without a new version.
//
// Each chunk is one zstd frame, or stored as it is when that saves less than a 32nd. Frames lie back to back in pack files
// of up to 64 MiB, in image order. A chunk that the store holds already is not stored again: the index points into the
// older pack. Packs never change once they have their name, the first 16 bytes of SHA-256 over the SHA-256 of their frames.
// A pack ends with a table (SHA-256 of the raw chunk, SHA-256 and length of the frame, offset, xxHash64) that only later
// imports read.
//
// The index lists packs and chunks. It is little-endian:
//
//	magic "bcdindex", u32 version 1, u32 block size 4096, u64 raw bytes of the image
//	u32 packs, u32 chunks, u32 length of the table, u32 length of the table compressed
//	packs × 16 bytes: pack names
//	one zstd frame: the table, five variable-length integers a chunk: zero blocks before it, blocks in it, pack (signed
//	difference to the chunk before), offset in the pack (signed difference to the end of the frame before), frame length
//	chunks × 40 bytes: SHA-256 of the frame, xxHash64 of the raw bytes
//
// A frame as long as its chunk is not compressed. The SHA-256 of the whole index is what a signed command pins; from there
// every hash in it is trusted. A reader of another version refuses with the reason chunk-index-version.
//
// # Transfer
//
// The boot listener serves packs as plain files. An agent gathers frames that are neighbours in a pack into one Range
// request of up to 4 MiB (Plan), over several connections, and joins chunks that are neighbours in the image into one write
// of up to 4 MiB. What is fetched and then thrown away, between two frames it wants, is at most 64 KiB at a time.
//
// # What was measured
//
// Two builds of one Debian image (1 GiB raw, 361 MB of it used), the second with two more packages, on two cores of a
// server CPU with SHA instructions. "New" is the share of the second image's bytes that the first does not hold.
//
//	min/avg/max KiB    chunks   new     new, stored   first image stored   decompress, one core
//	 16/ 16/  64       12,900   0.138   21.9 MB       130.1 MB              860 MB/s
//	  8/ 32/ 128       10,100   0.162   23.8 MB       128.7 MB              900 MB/s
//	 16/ 64/ 256        4,800   0.219   28.6 MB       125.9 MB             1010 MB/s     (chosen)
//	 32/ 64/ 256        3,900   0.225   29.2 MB       125.6 MB             1000 MB/s
//	 32/128/ 512        2,350   0.286   34.4 MB       124.0 MB             1050 MB/s
//	 64/256/1024        1,130   0.386   43.2 MB       121.8 MB             1130 MB/s
//	 whole image, zstd -3                             112.6 MB
//
// Cutting at bytes instead of blocks, by a rolling hash, gives 0.12, 0.22 and 0.41 for averages of 16, 64 and 256 KiB: the
// same, for file systems move their files by whole blocks. Fixed pieces of 64 KiB give 0.91. A zero run of 4, 16 or 64 KiB
// as the end of a chunk changes neither figure by a hundredth.
//
// With the chosen form the first image's index is 205 kB for 4,712 chunks (0.06 % of the bytes used), and an agent makes 89
// requests for 126 MB in 127 writes. The second makes 137 requests for 134 MB, of which it throws 2 MB away, in 646 writes;
// its import added 28.6 MB to the store. Single requests for single chunks would have been 4,790.
//
// Hashes: SHA-256 over the stored bytes costs 0.7 s a GB with SHA instructions, over the raw bytes three times that here.
// So the wire is checked by SHA-256 of frames, and read-back, which is against faults and not against attackers, by
// xxHash64 of raw bytes (6.5 GB/s). BLAKE3 was weighed and left: about a tenth of a deploy's CPU time on two cores, for one
// more dependency in the ramdisk. Higher zstd levels were left as well: "better" stores 1 % less and "best" 6 % less, at 77
// and 20 % of the import speed, and neither decompresses faster.
package chunk
