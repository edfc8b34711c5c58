// Package chunk is the form in which disk images are kept and travel: the contract between import, boot listener and agent.
//
// # Form
//
// A raw image is cut into chunks of 16 to 256 KiB. Chunks start at multiples of 4 KiB and are multiples of it long (Block).
// A chunk ends after the first block, from 16 KiB on, that ends with four zero bytes, as the last block of a file does, or
// whose xxHash64 has four zero bits at its end; or before a run of 16 KiB of zeros; or at 256 KiB. After 262,144 chunks they
// are eight times as large. Blocks of zeros at either end of a chunk are dropped: what no chunk covers is zero. Where chunks
// end is an import's affair alone: a later build may cut otherwise without a new version.
//
// Each chunk is one zstd frame, or stored as it is when that saves less than a 32nd. Frames lie back to back in pack files
// of up to 64 MiB, in image order. A chunk that the store holds already is not stored again: the index points into the
// older pack. Packs never change once they have their name, the first 16 bytes of SHA-256 over the BLAKE3 hashes of their
// frames. A pack ends with a table (BLAKE3 of the raw chunk, BLAKE3 and length of the frame, offset, xxHash64) that only
// later imports read.
//
// The index lists packs and chunks. It is little-endian:
//
//	magic "bcdindex", u32 version 2, u32 block size 4096, u64 raw bytes of the image
//	u32 packs, u32 chunks, u32 length of the table, u32 length of the table compressed
//	packs × 16 bytes: pack names
//	one zstd frame: the table, five variable-length integers a chunk: zero blocks before it, blocks in it, pack (signed
//	difference to the chunk before), offset in the pack (signed difference to the end of the frame before), frame length
//	chunks × 56 bytes: BLAKE3 of the frame, first half of the BLAKE3 of the raw bytes, xxHash64 of the raw bytes
//
// A frame as long as its chunk is not compressed. The SHA-256 of the whole index is what a signed command pins; from there
// every hash in it is trusted. A reader of another version refuses with the reason chunk-index-version; a
// catalog that finds such an index says that the image is to be imported again.
//
// # Transfer
//
// The boot listener serves packs as plain files. An agent gathers frames that are neighbours in a pack into one Range
// request of up to 4 MiB (Plan), over several connections, and joins chunks that are neighbours in the image into one write
// of up to 4 MiB. What is fetched and then thrown away, between two frames it wants, is at most 64 KiB at a time.
//
// # Seeds
//
// A disk that holds another image, or a part of this one, is a seed: Held says which chunks may lie on it and where, Moves
// gathers them, and Order arranges the moves so that none destroys what another still has to read, although source and
// target are the same disk. Each chunk is read and verified by its ID before it is trusted; what fails is fetched.
//
// # What was measured
//
// Two builds of one Debian image (1.25 GiB raw, 475 MB of it used), the second with two more packages (jq, tmux). "Sent" is
// what an agent fetches of the second when its disk holds the first, index included, over what it fetches of all of it.
// Blocks of 4 KiB, each on its own, would give 0.056 of the raw bytes.
//
//	min/avg/max KiB    cut at the end of files    chunks   sent
//	 16/ 16/  64       no                         17,000   0.131
//	 16/ 64/ 256       no                          6,300   0.189
//	  4/ 16/ 128       yes                        57,700   0.105
//	  8/ 32/ 128       yes                        30,600   0.112
//	  8/ 64/ 256       yes                        27,100   0.115
//	 16/ 16/  64       yes                        22,000   0.119
//	 16/ 64/ 256       yes                        16,900   0.123     (chosen)
//
// Cutting at bytes instead of blocks, by a rolling hash, gives what cutting at blocks gives, for file systems move their
// files by whole blocks. Fixed pieces of 64 KiB share a tenth. What has no files in it, or large ones, keeps chunks of
// 64 KiB and more.
//
// So a machine whose disk holds the first build fetches 23.0 MB of the second instead of 168.4, indexes of 0.95 MB included,
// leaves 42 MB in place and moves 382 MB on its disk. One that holds neither fetches 1.006 times what the chunks take, their
// packs being shared with the first build.
//
// A dense image of 1 GiB, half noise and half a short pattern, needs 0.9 s of fetching and writing on two idle cores, and
// then 0.39 s of flushing, when it is flushed once at the end; flushed every 32 MiB by one of eight connections, 0.92 to
// 1.04 s in all. Of 1.05 s of processor time, HTTP server included, 0.28 s are decompression, 0.25 s BLAKE3 and 0.2 s the
// connection. Handing on 256 KiB at a time as they come, writes of 1 MiB, and large pages for the buffers cost more than they
// save; spans of 2 MiB change nothing.
//
// Hashes: BLAKE3 (AVX2) takes 0.4 s a GB here, of pieces as small as frames are, SHA-256 with the processor's own
// instructions 0.7 s. In QEMU's software emulation both are slow alike: 30 and 28 MB/s on its default processor, 14 and
// 11 MB/s on one that emulates these instructions. The wire is checked by BLAKE3 of frames; bytes that lie on a
// disk already (seeds) by BLAKE3 of the raw bytes, for who had the disk before may have prepared it; read-back, which is
// against faults and not against attackers, by xxHash64 of raw bytes (6.5 GB/s).
//
// zstd levels, of klauspost/compress: "better" (chosen) stores 2 % less than "default" on the Debian image at 79 % of its
// import speed (134 against 170 MB/s and core), and decompresses as fast; on an image half of which is noise and half a
// short pattern it decompresses at 6.5 GB/s instead of 2.6. "Fastest" stores 4 % more and decompresses no faster.
package chunk
