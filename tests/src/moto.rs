//! moto, a stand-in for AWS that is not ours.

use crate::absent::absent;
use crate::mail_server::{own_address, python_with};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_mins(1);

const HOW_TO_GET_IT: &str = "python3 -m venv target/tools/python && \
                             target/tools/python/bin/pip install 'moto[ses,server]==5.2.5'";

/// Ends with whoever started it, whose end closes its standard input.
const PROGRAM: &str = "import os, sys, threading\n\
    from moto.server import main\n\
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n\
    main(sys.argv[1:])\n";

/// A running moto on a loopback address of its own; it ends with this value.
pub struct Moto {
    child: Child,
    address: SocketAddr,
}

impl Moto {
    /// Starts one. `None`, after one line that says so, where it is not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        let started = Self::run();
        if started.is_none() {
            absent("moto", "delivery to an Amazon SES that is not ours", HOW_TO_GET_IT);
        }
        started
    }

    fn run() -> Option<Self> {
        let python = python_with("moto.server")?;
        // It takes no socket from us, so the port is free for a moment; on an address that nobody
        // else uses, nobody else can take it meanwhile.
        let address = TcpListener::bind((own_address(), 0)).ok()?.local_addr().ok()?;
        let child = Command::new(python)
            .args(["-c", PROGRAM, "-H", &address.ip().to_string()])
            .args(["-p", &address.port().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let moto = Self { child, address };
        let give_up = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > give_up {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(moto)
    }

    /// The base of every service's URLs.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
