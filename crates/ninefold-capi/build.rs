//! Gives the shared library its SONAME, so that programs ask for libninefold.so.0 whatever the version behind that is; and keeps
//! dlclose(3) from taking it away from under the thread of its connections.

/// Raised when a program that was linked before would not work any more.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libninefold.so.{ABI}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
