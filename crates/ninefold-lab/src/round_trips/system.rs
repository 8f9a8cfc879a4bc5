//! Who does the operations: the old kernel, our commands in three dialects, and two others beside.

use super::operation::Operation;
use super::ours::Speech;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    Old,
    Ours(Speech),
    Sshfs,
    Rsync,
}

impl System {
    pub const ALL: [System; 6] = [
        System::Old,
        System::Ours(Speech::Linux),
        System::Ours(Speech::Pipelined),
        System::Ours(Speech::Warm),
        System::Sshfs,
        System::Rsync,
    ];

    pub fn name(self) -> &'static str {
        match self {
            System::Old => "9P2000, one at a time",
            System::Ours(Speech::Linux) => "ninefold .L",
            System::Ours(Speech::Pipelined) => "ninefold .ix",
            System::Ours(Speech::Warm) => "ninefold .n1, warm",
            System::Sshfs => "sshfs",
            System::Rsync => "rsync",
        }
    }

    /// Whether its time begins with a connection: a kernel's mount has one.
    pub fn connects(self) -> bool {
        matches!(self, System::Ours(_) | System::Rsync)
    }

    /// Whether it has a way of its own to do an operation.
    pub fn does(self, operation: Operation) -> bool {
        use Operation::{CopyDown, CopyLarge, CopyParallel, CopyTreeDown, CopyTreeUp, CopyUp};
        match self {
            System::Rsync => matches!(operation, CopyDown | CopyUp | CopyTreeDown | CopyTreeUp | CopyLarge),
            System::Old | System::Sshfs => operation != CopyParallel,
            System::Ours(_) => true,
        }
    }
}
