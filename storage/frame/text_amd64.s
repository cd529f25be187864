#include "textflag.h"

// CHECK adds to Y1 what is wrong with a block, given the bytes one, two and three places before each of its own in Y11,
// Y12 and Y13. It uses Y14 and Y15.
#define CHECK(block) \
	VPSRLW $4, Y11, Y14   \ // the rules that each byte breaks together with the one before it
	VPAND Y5, Y14, Y14    \
	VPSHUFB Y14, Y2, Y14  \
	VPAND Y5, Y11, Y15    \
	VPSHUFB Y15, Y3, Y15  \
	VPAND Y15, Y14, Y14   \
	VPSRLW $4, block, Y15 \
	VPAND Y5, Y15, Y15    \
	VPSHUFB Y15, Y4, Y15  \
	VPAND Y15, Y14, Y14   \
	VPSUBUSB Y6, Y12, Y12 \ // two bytes in a row that go on with a letter, the last rule, are right where it has three or four
	VPSUBUSB Y7, Y13, Y13 \
	VPOR Y13, Y12, Y12    \
	VPAND Y8, Y12, Y12    \
	VPXOR Y12, Y14, Y14   \
	VPOR Y14, Y1, Y1

// func scanText(p *byte, blocks int, last *[32]byte, t *textTables) (bad, high uint32)
//
// Y0 the block before, Y1 what is wrong so far, Y2-Y4 the tables, Y5-Y8 constants, Y9 this block, Y10 the next of a pair.
// R8 and R9: whether this block and the one before have bytes that are not ASCII; R10 whether any has.
TEXT ·scanText(SB), NOSPLIT, $0-40
	MOVQ p+0(FP), SI
	MOVQ blocks+8(FP), CX
	MOVQ last+16(FP), DI
	MOVQ t+24(FP), DX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VBROADCASTI128 0(DX), Y2
	VBROADCASTI128 16(DX), Y3
	VBROADCASTI128 32(DX), Y4
	VPBROADCASTB 48(DX), Y5
	VPBROADCASTB 49(DX), Y6
	VPBROADCASTB 50(DX), Y7
	VPBROADCASTB 51(DX), Y8
	XORL R9, R9
	XORL R10, R10
	TESTQ CX, CX
	JZ tail

loop:
	VMOVDQU (SI), Y9
	ADDQ $32, SI

block:
	VPMOVMSKB Y9, R8
	ORL R8, R10
	ORL R8, R9
	JZ next // nothing but ASCII, here and just before

	// Y11, Y12, Y13: the bytes one, two and three places before each.
	VPERM2I128 $0x21, Y9, Y0, Y10
	VPALIGNR $15, Y10, Y9, Y11
	VPALIGNR $14, Y10, Y9, Y12
	VPALIGNR $13, Y10, Y9, Y13
	CHECK(Y9)

next:
	VMOVDQA Y9, Y0
	MOVL R8, R9
	DECQ CX
	JL done
	JZ tail

	// Two blocks at a time, behind the first one: what is before them is read from memory.
pair:
	CMPQ CX, $2
	JLT loop
	VMOVDQU (SI), Y9
	VMOVDQU 32(SI), Y10
	VPOR Y9, Y10, Y11
	VPMOVMSKB Y11, R8
	ORL R8, R10
	ORL R8, R9
	JZ both
	VMOVDQU -1(SI), Y11
	VMOVDQU -2(SI), Y12
	VMOVDQU -3(SI), Y13
	CHECK(Y9)
	VMOVDQU 31(SI), Y11
	VMOVDQU 30(SI), Y12
	VMOVDQU 29(SI), Y13
	CHECK(Y10)

both:
	VMOVDQA Y10, Y0
	MOVL R8, R9
	ADDQ $64, SI
	SUBQ $2, CX
	JNZ pair

tail:
	VMOVDQU (DI), Y9
	XORQ CX, CX
	JMP block

done:
	XORL AX, AX
	VPTEST Y1, Y1
	SETNE AX
	VZEROUPPER
	MOVL AX, bad+32(FP)
	MOVL R10, high+36(FP)
	RET
