//! The processor's architecture, as both sides see it: that of the traced machine, also where the programs for its
//! kernel are compiled.
//!
//! Another architecture is added as a file beside these with the same items; it is chosen here, and nowhere else.

#[cfg(any(target_arch = "aarch64", bpf_target_arch = "aarch64", test))]
#[cfg_attr(
    not(any(target_arch = "aarch64", bpf_target_arch = "aarch64")),
    expect(dead_code, reason = "only tested on this machine")
)]
mod aarch64;
#[cfg(any(target_arch = "x86_64", bpf_target_arch = "x86_64"))]
mod x86_64;

#[cfg(any(target_arch = "aarch64", bpf_target_arch = "aarch64"))]
use aarch64 as ours;
#[cfg(any(target_arch = "x86_64", bpf_target_arch = "x86_64"))]
use x86_64 as ours;

pub use ours::REGISTER_WORDS;
pub(crate) use ours::condition;
