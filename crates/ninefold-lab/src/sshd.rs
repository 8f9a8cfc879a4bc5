//! An sshd of our own, with keys made for this run and a configuration that is read instead of the user's and the machine's, and the
//! configuration by which ssh, scp and sshfs reach it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::debian::need;

/// Of what has not yet said who it is; beyond the clients that come at once, of which sshd would turn some away (sshd_config(5)).
const STARTUPS: u32 = 100;

#[derive(Debug)]
pub struct Sshd {
    /// The command that serves in the foreground, and says that it is `listening on` its port.
    pub words: Vec<OsString>,
    /// For `ssh -F`.
    pub config: PathBuf,
}

impl Sshd {
    /// Makes keys and configurations in a directory, which is emptied before. `more`: further lines of both. The error says what is
    /// missing.
    pub fn prepare(dir: &Path, host: &str, port: &str, more: &str) -> Result<Sshd> {
        let sshd = need("sshd", "openssh-server")?;
        let keygen = need("ssh-keygen", "openssh-client")?;
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => fs::create_dir(dir)?,
        }
        // Debian's sshd asks for it where root starts it, and only its service makes it.
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd")?;
        }
        for name in ["host", "key"] {
            let mut command = Command::new(&keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(name)).stdin(Stdio::null());
            ensure!(command.status()?.success(), "ssh-keygen failed");
        }
        let text = format!(
            "ListenAddress {host}\nPort {port}\nHostKey {0}/host\nAuthorizedKeysFile {0}/key.pub\nPidFile none\nStrictModes no\n\
             UsePAM no\nUseDNS no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n\
             MaxStartups {STARTUPS}\n{more}",
            dir.display()
        );
        fs::write(dir.join("sshd_config"), text)?;
        let config = dir.join("ssh_config");
        let text = format!(
            "IdentityFile {}/key\nIdentitiesOnly yes\nBatchMode yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n\
             GlobalKnownHostsFile /dev/null\nLogLevel ERROR\nPort {port}\n{more}",
            dir.display()
        );
        fs::write(&config, text)?;
        let words = vec![sshd.into(), "-D".into(), "-e".into(), "-f".into(), dir.join("sshd_config").into()];
        Ok(Sshd { words, config })
    }
}
