//! The servers of a lab and their configurations. Each peer is set up as its manual has it for large files: nginx with sendfile,
//! tcp_nopush and tcp_nodelay, and without an access log; sshd with the fastest cipher of a processor with AES; none of them waits
//! for a disk.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::way::{HOST, Places, Server, TO};
use crate::debian::need;
use crate::sshd::Sshd;

/// The client's end of a lab.
const CLIENT: &str = "10.9.0.1";

/// What sshd and ssh agree on: the first of both that is known to be fast in hardware.
const CIPHERS: &str = "Ciphers aes128-gcm@openssh.com\n";

/// Makes what a server needs; the words that start it in the foreground. The error says what is missing.
pub fn prepare(server: Server, places: &mut Places) -> Result<Vec<OsString>> {
    let (served, to) = (places.served.clone(), places.to.clone());
    let scratch = places.scratch.clone();
    let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
    Ok(match server {
        Server::Ninefold => {
            let mut export = OsString::from(format!("{TO}="));
            export.push(&to);
            let listen = format!("9p://{}", server.address());
            let mut all = vec![places.ninefold.clone().into(), "serve".into(), served.into()];
            all.extend(["--export".into(), export, "--listen".into(), listen.into(), "--insecure".into()]);
            all
        }
        Server::Exporter => {
            let ns = scratch.join("exported.ns");
            let behind = Server::Ninefold.address();
            fs::write(&ns, format!("mount 9p://{behind} /\nmount 9p://{behind} /{TO} {TO}\n"))?;
            let mut all = vec![places.ninefold.clone().into(), "serve".into(), "--ns".into(), ns.into()];
            all.extend(words(&["--listen", &format!("9p://{}", server.address()), "--insecure"]));
            all
        }
        Server::Diod => {
            let hosts = scratch.join("hosts");
            fs::write(&hosts, format!("{HOST} server\n{CLIENT} client\n"))?;
            // It closes a connection from an address whose name nobody can tell, and in a lab nobody can.
            let named = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
            let mut all = words(&["unshare", "-m", "sh", "-c", named]);
            all.extend([hosts.into(), need("diod", "diod")?.into()]);
            all.extend(words(&["-f", "-n", "-c", "/dev/null", "-L", "stderr", "-l", &server.address(), "-e"]));
            all.push(served.into());
            all
        }
        Server::Pump => {
            let mut all = vec![places.bench.clone().into()];
            all.extend(words(&["thesis-part", "pump-serve", &server.address()]));
            all.extend([served.into(), to.into()]);
            all
        }
        Server::Nginx => {
            let nginx = need("nginx", "nginx-light")?;
            let dir = scratch.join("nginx");
            made(&dir)?;
            let config = dir.join("nginx.conf");
            fs::write(&config, nginx_config(&dir, &served, &to))?;
            let mut all = vec![nginx.into(), "-e".into(), "stderr".into(), "-p".into(), dir.into()];
            all.extend(["-c".into(), config.into()]);
            all
        }
        Server::Sshd => {
            need("scp", "openssh-client")?;
            let sshd = Sshd::prepare(&scratch.join("ssh"), HOST, &server.port().to_string(), CIPHERS)?;
            places.ssh_config = sshd.config;
            sshd.words
        }
        Server::Rsync => {
            let rsync = need("rsync", "rsync")?;
            let config = scratch.join("rsyncd.conf");
            // Or it would become nobody.
            let user = "uid = 0\ngid = 0\n";
            let module =
                |name: &str, path: &Path| format!("[{name}]\npath = {}\nread only = no\n{user}", path.display());
            let text = format!(
                "use chroot = no\naddress = {HOST}\nport = {}\nreverse lookup = no\n{}{}",
                server.port(),
                module("served", &served),
                module(TO, &to)
            );
            fs::write(&config, text)?;
            let mut all = vec![rsync.into()];
            all.extend(words(&["--daemon", "--no-detach", "--log-file=/dev/stderr", "--config"]));
            all.push(config.into());
            all
        }
    })
}

fn made(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

/// Temporary files of a PUT lie beside where they go, so that they are renamed and not copied (ngx_http_dav_module).
fn nginx_config(dir: &Path, served: &Path, to: &Path) -> String {
    let (dir, served, to) = (dir.display(), served.display(), to.display());
    let others: String = ["fastcgi", "proxy", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("  {name}_temp_path {dir}/{name};\n"))
        .collect();
    format!(
        "user root;\ndaemon off;\nworker_processes auto;\npid {dir}/pid;\nerror_log stderr warn;\nevents {{\n  worker_connections 512;\n}}\n\
         http {{\n  default_type application/octet-stream;\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  tcp_nodelay on;\n  \
         client_max_body_size 0;\n  client_body_buffer_size 1m;\n  client_body_temp_path {to}/.nginx;\n{others}  server {{\n    \
         listen {address};\n    location / {{\n      root {served};\n    }}\n    location /{TO}/ {{\n      alias {to}/;\n      \
         dav_methods PUT;\n    }}\n  }}\n}}\n",
        address = Server::Nginx.address()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_sends_by_sendfile_and_renames_what_was_put() {
        let config = nginx_config("/s".as_ref(), "/served".as_ref(), "/to".as_ref());
        for line in ["sendfile on;", "tcp_nodelay on;", "listen 10.9.0.2:8080;", "dav_methods PUT;", "user root;"] {
            assert!(config.contains(line), "{line} in {config}");
        }
        assert!(config.contains("client_body_temp_path /to/.nginx;") && config.contains("alias /to/;"), "{config}");
        assert_eq!(config.matches('{').count(), config.matches('}').count());
    }
}
