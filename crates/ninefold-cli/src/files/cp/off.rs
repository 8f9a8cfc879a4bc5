//! System calls that may wait for a disk, off the thread that moves messages.

use super::trouble::Cause;

/// Runs `call` on a thread where it may wait.
pub async fn off<T: Send + 'static>(call: impl FnOnce() -> Result<T, Cause> + Send + 'static) -> Result<T, Cause> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        // It panicked, or the command ends.
        Err(e) => Err(Cause::words(e.to_string())),
    }
}
