//! A server in a folder and on a port of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::frame::{machine, recorder, shell};

/// Longest time for a server to start, and for an answer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server of a Debian package.
pub struct Program {
    pub name: &'static str,
    pub package: &'static str,
    /// File of the package.
    pub needs: &'static str,
    /// The program, in which `DIR` is replaced.
    pub path: &'static str,
    /// User that runs it, if root may not.
    pub user: Option<&'static str>,
    /// Its configuration, in which `DIR` and `PORT` are replaced.
    pub config: &'static str,
    /// Arguments, in which they are replaced, too. `DIR/config` is the configuration.
    pub args: &'static [&'static str],
    /// Program and arguments that make its data; none if empty.
    pub init: &'static [&'static str],
}

impl Program {
    /// Without user, configuration, arguments and data; the file of the package is the program.
    pub const fn new(name: &'static str, package: &'static str, path: &'static str) -> Self {
        Self {
            name,
            package,
            needs: path,
            path,
            user: None,
            config: "",
            args: &[],
            init: &[],
        }
    }
}

/// A process for each connection.
pub const POSTGRES: Program = Program {
    user: Some("postgres"),
    args: &["-D", "DIR/data", "-p", "PORT", "-k", "DIR"],
    init: &[
        "/usr/lib/postgresql/15/bin/initdb",
        "-A",
        "trust",
        "-U",
        "postgres",
        "-D",
        "DIR/data",
    ],
    ..Program::new(
        "PostgreSQL",
        "postgresql",
        "/usr/lib/postgresql/15/bin/postgres",
    )
};

/// Choice of servers, and of the tool.
#[derive(clap::Args)]
pub struct Which {
    /// Only this server
    #[arg(long)]
    server: Option<String>,
    /// Use this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

impl Which {
    /// The tool, and those of all servers that are meant; fails if one of them is not installed.
    pub fn of<'a, S>(
        &self,
        all: &'a [S],
        program: impl Fn(&S) -> &Program,
    ) -> Result<(PathBuf, Vec<&'a S>)> {
        let wanted = |it: &&S| {
            let name = self.server.as_deref();
            name.is_none_or(|name| name == program(it).name)
        };
        let servers: Vec<&S> = all.iter().filter(wanted).collect();
        ensure!(!servers.is_empty(), "no such server");
        for Program { needs, package, .. } in servers.iter().map(|it| program(it)) {
            if !Path::new(needs).exists() {
                bail!("no {needs}: apt-get install {package}");
            }
        }
        Ok((recorder::of(self.tool.as_deref())?, servers))
    }
}

/// Folder of a server, which its user may read.
pub fn dir_of(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pebs-server-{name}"))
}

/// A server that runs.
pub struct Running {
    child: Child,
    pub dir: PathBuf,
    pub port: u16,
}

impl Running {
    /// Starts it with these variables; `answers` tells when it does.
    pub fn start(
        program: &Program,
        variables: &[(String, String)],
        answers: impl Fn(&Self) -> bool,
    ) -> Result<Self> {
        let dir = dir_of(program.name);
        shell::output(Command::new("rm").arg("-rf").arg(&dir))?;
        fs::create_dir_all(dir.join("www"))?;
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
        fs::write(dir.join("www/page"), "hello, world\n".repeat(50))?;
        for (name, turns) in [("page", 20_000), ("dear", 1_000_000)] {
            let script = format!(
                "<?php $s = 0; for ($i = 0; $i < {turns}; $i++) {{ $s += $i % 7; }} echo $s;"
            );
            fs::write(dir.join(format!("www/{name}.php")), script)?;
        }
        shell::output(
            Command::new("chown")
                .args(["-R", "www-data"])
                .arg(dir.join("www")),
        )?;
        let port = machine::free_port()?;
        let place = |text: &str| {
            let text = text.replace("DIR", &dir.display().to_string());
            text.replace("PORT", &port.to_string())
        };
        let config = match program.path.ends_with("python3") {
            true => "config.py",
            false => "config",
        };
        fs::write(dir.join(config), place(program.config))?;
        let id = program.user.map(|user| -> Result<u32> {
            let id = shell::output(Command::new("id").args(["-u", user]))?;
            Ok(id.trim().parse()?)
        });
        let id = id.transpose()?;
        if let Some(id) = id {
            chown(&dir, Some(id), None)?;
        }
        let command = |path: &str, args: &[&str]| {
            let mut command = Command::new(place(path));
            command.args(args.iter().map(|arg| place(arg)));
            command.current_dir(&dir);
            if let Some(id) = id {
                command.uid(id);
            }
            command
        };
        if let [init, args @ ..] = program.init {
            shell::output(&mut command(init, args))?;
        }
        let log = fs::File::create(dir.join("output"))?;
        let child = command(program.path, program.args)
            // Apache ends its whole group.
            .process_group(0)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.path))?;
        let running = Self { child, dir, port };
        if !machine::wait_until(PATIENCE, || answers(&running)) {
            let dir = running.dir.display();
            bail!("{} does not answer; see {dir}", program.name);
        }
        Ok(running)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; how it did.
    pub fn stop(&mut self) -> Result<String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended with its children, if all is well.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
