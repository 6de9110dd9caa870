// SPDX-License-Identifier: GPL-2.0
/* What an instruction does, as far as the work of `pebs-trace validate` has it. */
#include <linux/uaccess.h>
#include <asm/ptrace.h>
#include "softpmu.h"

static unsigned long register_of(const struct pt_regs *regs, int number)
{
	const unsigned long all[] = {
		regs->ax, regs->cx, regs->dx,  regs->bx,  regs->sp,  regs->bp,	regs->si,  regs->di,
		regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15,
	};

	return all[number];
}

/* The address of an operand that is a register with a displacement; false: it is another one, or no memory. */
static bool address(const struct pt_regs *regs, u8 rex, const u8 *modrm, u64 *address)
{
	int mode = *modrm >> 6, rm = *modrm & 7;

	if (mode == 3 || rm == 4 || (!mode && rm == 5))
		return false;
	*address = register_of(regs, rm | (rex & 1) << 3);
	if (mode == 1)
		*address += (s8)modrm[1];
	if (mode == 2)
		*address += *(const s32 *)(modrm + 1);
	return true;
}

struct op op_at(const struct pt_regs *regs)
{
	u8 bytes[16], *at = bytes, rex = 0;
	struct op op = {};
	bool has_memory;

	if (!user_mode((struct pt_regs *)regs) ||
	    copy_from_user_nofault(bytes, (const void __user *)regs->ip, sizeof(bytes)))
		return op;
	for (; *at == 0x66 || *at == 0xf0 || *at == 0xf2 || *at == 0xf3; at++)
		op.locked |= *at == 0xf0;
	if ((*at & 0xf0) == 0x40)
		rex = *at++;
	has_memory = address(regs, rex, at + 1, &op.address);
	switch (*at) {
	case 0x8b: /* mov from memory */
		op.load = has_memory;
		break;
	case 0x88: /* mov to memory */
	case 0x89:
	case 0xc6:
	case 0xc7:
		op.store = has_memory;
		break;
	case 0x83: /* arithmetic with a constant */
		op.load = op.store = op.locked && has_memory;
		break;
	case 0xc3: /* ret */
		op.load = op.branch = op.taken = true;
		op.address = regs->sp;
		break;
	case 0xe8: /* call */
		op.store = op.branch = op.taken = true;
		op.address = regs->sp - 8;
		break;
	case 0x0f: /* je, jne, to far places */
		at++;
		if (*at != 0x84 && *at != 0x85)
			break;
		fallthrough;
	case 0x74: /* je, jne */
	case 0x75:
		op.branch = true;
		op.taken = ((regs->flags & X86_EFLAGS_ZF) != 0) != (*at & 1);
		break;
	}
	return op;
}
