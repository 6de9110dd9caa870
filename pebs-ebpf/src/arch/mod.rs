//! The traced machine's registers, and how its kernel is entered.
//!
//! Another architecture is added as a folder beside these with the same items; it is chosen here, and nowhere else.

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;

#[cfg(bpf_target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;

/// State of a CPU at a sample.
#[derive(Clone, Copy)]
pub struct Sampled {
    pub ip: u64,
    pub sp: u64,
    /// Whether the ip is that of the instruction which caused the sample.
    pub exact: bool,
    /// Whether it was in the kernel.
    pub kernel: bool,
}

/// Entry of a thread to the kernel.
#[derive(Clone, Copy)]
pub enum Entered {
    /// By a system call of 64-bit code.
    SystemCall(u64),
    /// By one of 32-bit code, which have other numbers.
    OtherCall,
    /// By an exception or an interrupt.
    Otherwise,
}
