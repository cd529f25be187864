#include "textflag.h"

// func avxUnpack32(dst *uint32, src *byte, rounds, width int, p *plan32)
//
// Y1 shuffle, Y2 shift, Y3 mask.
TEXT ·avxUnpack32(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ rounds+16(FP), CX
	MOVQ width+24(FP), DX
	MOVQ p+32(FP), R8
	VMOVDQU 0(R8), Y1
	VMOVDQU 32(R8), Y2
	VPBROADCASTD 64(R8), Y3
	MOVL 68(R8), R9
	ADDQ SI, R9

loop:
	VMOVDQU (SI), X0
	VINSERTI128 $1, (R9), Y0, Y0
	VPSHUFB Y1, Y0, Y0
	VPSRLVD Y2, Y0, Y0
	VPAND Y3, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ DX, SI
	ADDQ DX, R9
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// func avxSums32(dst *int32, src *byte, rounds, width int, p *plan32, low, last int32) int32
//
// Y1 shuffle, Y2 shift, Y3 mask, Y4 the least difference, Y5 the last sum, each in all places.
TEXT ·avxSums32(SB), NOSPLIT, $0-52
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ rounds+16(FP), CX
	MOVQ width+24(FP), DX
	MOVQ p+32(FP), R8
	VMOVDQU 0(R8), Y1
	VMOVDQU 32(R8), Y2
	VPBROADCASTD 64(R8), Y3
	MOVL low+40(FP), AX
	VMOVD AX, X4
	VPBROADCASTD X4, Y4
	MOVL last+44(FP), AX
	VMOVD AX, X5
	VPBROADCASTD X5, Y5
	MOVL 68(R8), R9
	ADDQ SI, R9

loop:
	VMOVDQU (SI), X0
	VINSERTI128 $1, (R9), Y0, Y0
	VPSHUFB Y1, Y0, Y0
	VPSRLVD Y2, Y0, Y0
	VPAND Y3, Y0, Y0
	VPADDD Y4, Y0, Y0

	// Sums in each half, then the lower half's total onto the upper half.
	VPSLLDQ $4, Y0, Y6
	VPADDD Y6, Y0, Y0
	VPSLLDQ $8, Y0, Y6
	VPADDD Y6, Y0, Y0
	VPERM2I128 $0x08, Y0, Y0, Y6
	VPSHUFD $0xFF, Y6, Y6
	VPADDD Y6, Y0, Y0

	// The total is added to the last sum apart, so that rounds wait for each other one addition only.
	VPSHUFD $0xFF, Y0, Y6
	VPERMQ $0xFF, Y6, Y6
	VPADDD Y5, Y0, Y0
	VPADDD Y6, Y5, Y5
	VMOVDQU Y0, (DI)
	ADDQ DX, SI
	ADDQ DX, R9
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	VMOVD X5, AX
	VZEROUPPER
	MOVL AX, ret+48(FP)
	RET

// SUMS4 makes sums of the four values in Y0, and leaves their total with the last sum in Y5.
#define SUMS4(to) \
	VPADDQ Y4, Y0, Y0              \
	VPSLLDQ $8, Y0, Y6             \
	VPADDQ Y6, Y0, Y0              \
	VPERM2I128 $0x08, Y0, Y0, Y6   \
	VPUNPCKHQDQ Y6, Y6, Y6         \
	VPADDQ Y6, Y0, Y0              \
	VPERMQ $0xFF, Y0, Y6           \
	VPADDQ Y5, Y0, Y0              \
	VPADDQ Y6, Y5, Y5              \
	VMOVDQU Y0, to

// func avxSums64(dst *int64, src *byte, rounds, width int, p *plan64, low, last int64) int64
//
// Y1, Y7 shuffle, Y2, Y8 shift, Y3 mask, Y4 the least difference, Y5 the last sum, each in all places.
TEXT ·avxSums64(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ rounds+16(FP), CX
	MOVQ width+24(FP), DX
	MOVQ p+32(FP), R8
	VMOVDQU 0(R8), Y1
	VMOVDQU 32(R8), Y7
	VMOVDQU 64(R8), Y2
	VMOVDQU 96(R8), Y8
	VPBROADCASTQ 128(R8), Y3
	VPBROADCASTQ low+40(FP), Y4
	VPBROADCASTQ last+48(FP), Y5
	MOVQ 136(R8), R9
	MOVQ 144(R8), R11
	MOVQ 152(R8), R10
	ADDQ SI, R9
	ADDQ SI, R10
	ADDQ R10, R11

loop:
	VMOVDQU (SI), X0
	VINSERTI128 $1, (R9), Y0, Y0
	VPSHUFB Y1, Y0, Y0
	VPSRLVQ Y2, Y0, Y0
	VPAND Y3, Y0, Y0
	SUMS4(0(DI))
	VMOVDQU (R10), X0
	VINSERTI128 $1, (R11), Y0, Y0
	VPSHUFB Y7, Y0, Y0
	VPSRLVQ Y8, Y0, Y0
	VPAND Y3, Y0, Y0
	SUMS4(32(DI))
	ADDQ DX, SI
	ADDQ DX, R9
	ADDQ DX, R10
	ADDQ DX, R11
	ADDQ $64, DI
	DECQ CX
	JNZ loop
	VMOVQ X5, AX
	VZEROUPPER
	MOVQ AX, ret+56(FP)
	RET

// func avxJoin2(dst, src *byte, stride, rounds int)
TEXT ·avxJoin2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), DX
	MOVQ rounds+24(FP), CX

loop:
	VMOVDQU (SI), X0
	VMOVDQU (SI)(DX*1), X1
	VPUNPCKLBW X1, X0, X2
	VPUNPCKHBW X1, X0, X3
	VMOVDQU X2, 0(DI)
	VMOVDQU X3, 16(DI)
	ADDQ $16, SI
	ADDQ $32, DI
	DECQ CX
	JNZ loop
	RET

// func avxJoin4(dst, src *byte, stride, rounds int)
TEXT ·avxJoin4(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), DX
	MOVQ rounds+24(FP), CX
	LEAQ (SI)(DX*2), R8

loop:
	VMOVDQU (SI), X0
	VMOVDQU (SI)(DX*1), X1
	VMOVDQU (R8), X2
	VMOVDQU (R8)(DX*1), X3
	VPUNPCKLBW X1, X0, X4
	VPUNPCKHBW X1, X0, X5
	VPUNPCKLBW X3, X2, X6
	VPUNPCKHBW X3, X2, X7
	VPUNPCKLWD X6, X4, X0
	VPUNPCKHWD X6, X4, X1
	VPUNPCKLWD X7, X5, X2
	VPUNPCKHWD X7, X5, X3
	VMOVDQU X0, 0(DI)
	VMOVDQU X1, 16(DI)
	VMOVDQU X2, 32(DI)
	VMOVDQU X3, 48(DI)
	ADDQ $16, SI
	ADDQ $16, R8
	ADDQ $64, DI
	DECQ CX
	JNZ loop
	RET

// func avxJoin8(dst, src *byte, stride, rounds int)
//
// SI, R8, R9, R10: streams 0, 2, 4, 6; the one behind each is a stride away.
TEXT ·avxJoin8(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), DX
	MOVQ rounds+24(FP), CX
	LEAQ (SI)(DX*2), R8
	LEAQ (R8)(DX*2), R9
	LEAQ (R9)(DX*2), R10

loop:
	// Pairs of bytes.
	VMOVDQU (SI), X0
	VMOVDQU (SI)(DX*1), X1
	VPUNPCKLBW X1, X0, X8
	VPUNPCKHBW X1, X0, X9
	VMOVDQU (R8), X2
	VMOVDQU (R8)(DX*1), X3
	VPUNPCKLBW X3, X2, X10
	VPUNPCKHBW X3, X2, X11
	VMOVDQU (R9), X4
	VMOVDQU (R9)(DX*1), X5
	VPUNPCKLBW X5, X4, X12
	VPUNPCKHBW X5, X4, X13
	VMOVDQU (R10), X6
	VMOVDQU (R10)(DX*1), X7
	VPUNPCKLBW X7, X6, X14
	VPUNPCKHBW X7, X6, X15

	// Fours: X0-X3 the lower ones of values 0-3, 4-7, 8-11, 12-15; X4-X7 the upper ones.
	VPUNPCKLWD X10, X8, X0
	VPUNPCKHWD X10, X8, X1
	VPUNPCKLWD X11, X9, X2
	VPUNPCKHWD X11, X9, X3
	VPUNPCKLWD X14, X12, X4
	VPUNPCKHWD X14, X12, X5
	VPUNPCKLWD X15, X13, X6
	VPUNPCKHWD X15, X13, X7

	// Values.
	VPUNPCKLDQ X4, X0, X8
	VPUNPCKHDQ X4, X0, X9
	VPUNPCKLDQ X5, X1, X10
	VPUNPCKHDQ X5, X1, X11
	VPUNPCKLDQ X6, X2, X12
	VPUNPCKHDQ X6, X2, X13
	VPUNPCKLDQ X7, X3, X14
	VPUNPCKHDQ X7, X3, X15
	VMOVDQU X8, 0(DI)
	VMOVDQU X9, 16(DI)
	VMOVDQU X10, 32(DI)
	VMOVDQU X11, 48(DI)
	VMOVDQU X12, 64(DI)
	VMOVDQU X13, 80(DI)
	VMOVDQU X14, 96(DI)
	VMOVDQU X15, 112(DI)
	ADDQ $16, SI
	ADDQ $16, R8
	ADDQ $16, R9
	ADDQ $16, R10
	ADDQ $128, DI
	DECQ CX
	JNZ loop
	RET
