//! System calls that may wait for a disk, off the thread that moves messages.

use super::trouble::Cause;

/// Runs `call` on a thread where it may wait, from now on: what comes of it may be asked for later.
pub fn off<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Cause> + Send + 'static,
) -> impl Future<Output = Result<T, Cause>> + Send + 'static {
    let called = tokio::task::spawn_blocking(call);
    async {
        match called.await {
            Ok(result) => result,
            // It panicked, or the command ends.
            Err(e) => Err(Cause::words(e.to_string())),
        }
    }
}
