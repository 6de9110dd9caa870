//! Servers that `cargo xtask presets` and `cargo xtask suggest` look at besides those of `cargo xtask servers`: their items
//! overlap, or no function of theirs has one call for each request.

use super::clients;
use super::running::Program;
use super::stock::Server;

/// Without SPEC and clock.
const fn server(program: Program, client: super::stock::NewClient) -> Server {
    Server {
        program,
        spec: None,
        client,
        clock: None,
    }
}

pub(super) const FURTHER: [Server; 11] = [
    server(
        Program {
            config: "daemon off;\nmaster_process off;\nuser root;\npid DIR/pid;\nerror_log DIR/log;\nevents {}\n\
                http {\n access_log off;\n client_body_temp_path DIR/body;\n proxy_temp_path DIR/proxy;\n \
                fastcgi_temp_path DIR/fastcgi;\n uwsgi_temp_path DIR/uwsgi;\n scgi_temp_path DIR/scgi;\n \
                keepalive_requests 10000000;\n server {\n listen 127.0.0.1:PORT;\n root DIR/www;\n \
                location ~ ^/x(([a-z])+.)+[A-Z]([a-z])+$ { return 403; }\n \
                location /x { return 403; }\n }\n}\n",
            args: &["-c", "DIR/config"],
            ..Program::new("nginx", "nginx", "/usr/sbin/nginx")
        },
        clients::haproxy,
    ),
    server(
        Program {
            config: "options { directory \"DIR\"; listen-on port PORT { 127.0.0.1; }; listen-on-v6 { none; }; \
                recursion no; pid-file \"DIR/pid\"; session-keyfile none; };\ncontrols { };\n\
                zone \"test\" { type primary; file \"DIR/zone\"; };\n",
            args: &["-f", "-n", "1", "-c", "DIR/config"],
            init: &[
                "/bin/sh",
                "-c",
                "(echo '$TTL 60'; echo '@ SOA a. b. 1 60 60 60 60'; echo '@ NS a.'; echo 'usual A 192.0.2.1'; \
                echo 'dear CNAME c1'; for i in $(seq 8); do echo \"c$i CNAME c$((i + 1))\"; done; \
                for i in $(seq 90); do echo \"c9 A 192.0.2.$i\"; done) > DIR/zone",
            ],
            ..Program::new("bind9", "bind9", "/usr/sbin/named")
        },
        clients::dns,
    ),
    server(
        Program {
            config: "[global]\nerror_log = DIR/log\ndaemonize = no\n[www]\nuser = www-data\n\
                listen = 127.0.0.1:PORT\npm = static\npm.max_children = 1\n",
            args: &["--nodaemonize", "--fpm-config", "DIR/config"],
            ..Program::new("PHP-FPM", "php8.2-fpm", "/usr/sbin/php-fpm8.2")
        },
        clients::scripts,
    ),
    server(
        Program {
            config: "import zlib\ndef app(environ, start):\n    n = 60000 if environ['PATH_INFO'] != '/page' else 2000\n    \
                body = zlib.compress(bytes(n % 251 for n in range(n)))\n    \
                start('200 OK', [('Content-Length', str(len(body)))])\n    return [body]\n",
            args: &[
                "-m",
                "gunicorn",
                "-b",
                "127.0.0.1:PORT",
                "-w",
                "1",
                "--log-file",
                "DIR/log",
                "config:app",
            ],
            ..Program::new("gunicorn", "gunicorn", "/usr/bin/python3")
        },
        clients::gunicorn,
    ),
    server(
        Program {
            needs: "/usr/bin/sqlite3",
            // Both ends of its pipes stay open while no client has them.
            args: &[
                "-c",
                "mkfifo DIR/in DIR/out; exec stdbuf -oL sqlite3 DIR/db <> DIR/in 1<> DIR/out",
            ],
            ..Program::new("sqlite3", "sqlite3", "/bin/sh")
        },
        clients::sqlite,
    ),
    server(
        Program {
            config: "require('http').createServer((request, answer) => {\n \
                const n = request.url === '/page' ? 3000 : 3000000;\n let sum = 0;\n \
                for (let i = 0; i < n; i++) sum += i % 7;\n const text = String(sum);\n \
                answer.setHeader('Content-Length', text.length);\n answer.end(text);\n\
                }).listen(PORT, '127.0.0.1').keepAliveTimeout = 600000;\n",
            args: &["DIR/config"],
            ..Program::new("Node.js", "nodejs", "/usr/bin/node")
        },
        clients::plain,
    ),
    server(
        Program {
            config: "run ->(env) {\n n = env['PATH_INFO'] == '/page' ? 300 : 100_000\n text = (0...n).sum { |i| i % 7 }.to_s\n \
                [200, { 'Content-Length' => text.bytesize.to_s }, [text]]\n}\n",
            args: &["-b", "tcp://127.0.0.1:PORT", "-t", "1:1", "DIR/config.ru"],
            init: &["/bin/ln", "DIR/config", "DIR/config.ru"],
            ..Program::new("Puma", "puma", "/usr/bin/puma")
        },
        clients::plain,
    ),
    server(
        Program {
            config: "http_port 127.0.0.1:PORT accel defaultsite=localhost no-vhost\n\
                acl dear urlpath_regex ^/x(a*)*(a*)*(a*)*\\4\\3\\2c\nhttp_access deny dear\nhttp_access deny all\n\
                cache deny all\npid_filename DIR/www/pid\ncoredump_dir DIR/www\ncache_log DIR/www/log\n\
                access_log none\nnetdb_filename none\nvisible_hostname localhost\nshutdown_lifetime 0 seconds\n\
                pinger_enable off\n",
            args: &["-N", "-n", "pebsserver", "-f", "DIR/config"],
            // One that was killed leaves its shared memory behind.
            init: &[
                "/bin/sh",
                "-c",
                "rm -f /dev/shm/pebsserver-*; chown -R proxy DIR/www",
            ],
            ..Program::new("squid", "squid", "/usr/sbin/squid")
        },
        clients::squid,
    ),
    server(
        Program {
            config: "protocols = imap\nbase_dir = DIR/run\nlog_path = DIR/log\nssl = no\nlisten = 127.0.0.1\n\
                disable_plaintext_auth = no\nmail_location = maildir:DIR/www\nmail_fsync = never\n\
                passdb {\n driver = static\n args = password=secret\n}\n\
                userdb {\n driver = static\n args = uid=www-data gid=www-data home=DIR/www\n}\n\
                first_valid_uid = 1\n\
                service imap-login {\n inet_listener imap {\n port = PORT\n }\n\
                inet_listener imaps {\n port = 0\n }\n}\n",
            args: &["-F", "-c", "DIR/config"],
            init: &[
                "/bin/sh",
                "-c",
                "mkdir DIR/www/cur DIR/www/new DIR/www/tmp; \
                for i in $(seq 20); do (echo \"Subject: $i\"; echo; seq 500) > DIR/www/cur/$i:2,S; done; \
                chown -R www-data DIR/www",
            ],
            ..Program::new("dovecot", "dovecot-imapd", "/usr/sbin/dovecot")
        },
        clients::imap,
    ),
    server(
        Program {
            needs: "/bin/sh",
            config: "use axum::{Router, http::Uri};\n\
                async fn answer(uri: Uri) -> String {\n \
                let turns: u64 = if uri.path() == \"/page\" { 2_000 } else { 2_000_000 };\n \
                (0..turns).map(|it| std::hint::black_box(it) % 7).sum::<u64>().to_string()\n}\n\
                #[tokio::main(flavor = \"current_thread\")]\nasync fn main() {\n \
                let listener = tokio::net::TcpListener::bind(\"127.0.0.1:PORT\").await.unwrap();\n \
                axum::serve(listener, Router::new().fallback(answer)).await.unwrap();\n}\n",
            // What it depends on is built once.
            args: &[],
            init: &[
                "/bin/sh",
                "-c",
                "mkdir src; mv config src/main.rs; printf '[package]\nname = \"server\"\nedition = \"2024\"\n[dependencies]\n\
                axum = \"0.8\"\ntokio = { version = \"1\", features = [\"macros\", \"rt\", \"net\"] }\n\
                [profile.release]\ndebug = true\n[workspace]\n' > Cargo.toml; \
                cargo build --release --target-dir DIR/../pebs-server-axum-target",
            ],
            ..Program::new(
                "axum",
                "cargo",
                "DIR/../pebs-server-axum-target/release/server",
            )
        },
        clients::plain,
    ),
    server(
        Program {
            needs: "/usr/share/gocode/src/google.golang.org/grpc/server.go",
            config: "package main\nimport (\n\"context\"\n\"net\"\n\"runtime\"\n\"strconv\"\n\
                \"google.golang.org/grpc\"\n\"google.golang.org/grpc/encoding\"\n)\n\
                type plain struct{}\n\
                func (plain) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }\n\
                func (plain) Unmarshal(data []byte, v interface{}) error { *v.(*[]byte) = data; return nil }\n\
                func (plain) Name() string { return \"proto\" }\n\
                func method(name string, turns int) grpc.MethodDesc {\n\
                return grpc.MethodDesc{name, func(_ interface{}, _ context.Context, read func(interface{}) error, \
                _ grpc.UnaryServerInterceptor) (interface{}, error) {\n\
                var in []byte\nsum := 0\nfor i := 0; i < turns; i++ {\nsum += i % 7\n}\n\
                out := []byte(strconv.Itoa(sum))\nreturn &out, read(&in)\n}}\n}\n\
                func main() {\nruntime.GOMAXPROCS(1)\nencoding.RegisterCodec(plain{})\ns := grpc.NewServer()\n\
                methods := []grpc.MethodDesc{method(\"Usual\", 1000), method(\"Dear\", 1000000)}\n\
                s.RegisterService(&grpc.ServiceDesc{ServiceName: \"pebs.Server\", HandlerType: (*interface{})(nil), \
                Methods: methods}, nil)\n\
                l, _ := net.Listen(\"tcp\", \"127.0.0.1:PORT\")\ns.Serve(l)\n}\n",
            init: &[
                "/bin/sh",
                "-c",
                "cp DIR/config DIR/server.go && \
                HOME=DIR GO111MODULE=off GOPATH=/usr/share/gocode go build -o DIR/server DIR/server.go",
            ],
            ..Program::new("gRPC", "golang-google-grpc-dev golang-go", "DIR/server")
        },
        clients::grpc,
    ),
];
