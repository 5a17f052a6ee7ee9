/* Called by functions with more than a page of locals, their size in rax: touch each page, so that
 * Windows' guard page moves down. Every register is kept. */
__attribute__((naked)) void __chkstk(void)
{
    __asm__("pushq %rax\n\t"
            "pushq %rcx\n\t"
            "leaq 24(%rsp), %rcx\n" /* the caller's stack pointer */
            "1:\tcmpq $4096, %rax\n\t"
            "jb 2f\n\t"
            "subq $4096, %rcx\n\t"
            "testl %eax, (%rcx)\n\t"
            "subq $4096, %rax\n\t"
            "jmp 1b\n"
            "2:\tsubq %rax, %rcx\n\t"
            "testl %eax, (%rcx)\n\t"
            "popq %rcx\n\t"
            "popq %rax\n\t"
            "retq");
}
