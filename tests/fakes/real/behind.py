"""Starts nginx, HAProxy, Caddy, Apache, unicorn, or PHP-FPM behind nginx with a configuration of its own: behind.py
KIND PORT LIMIT.

The proxies pass requests on to BACKEND, HAProxy `LIMIT` at a time (0: any number), Apache by so many processes
(prefork) or threads (worker). PHP-FPM and unicorn have `LIMIT` processes, which do what PLANT names."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

kind, port, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
folder = Path(tempfile.mkdtemp(prefix="powerband-behind-"))
backend = os.environ.get("BACKEND", "").removeprefix("http://").rstrip("/")
NGINX = f"""\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr; user root;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; location / {{ %s }} }}
}}
"""
HAPROXY = f"""\
global
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout queue 30s
frontend in
  bind 127.0.0.1:{port}
  default_backend out
backend out
  server one {backend} {f"maxconn {limit}" if limit else ""}
"""
FPM = f"""\
[global]
daemonize = no
error_log = /dev/stderr
[www]
user = root
group = root
listen = {folder}/fpm.sock
listen.backlog = 511
pm = static
pm.max_children = {limit or 64}
clear_env = no
"""
CADDY = f"""\
{{
  admin off
  auto_https off
}}
http://127.0.0.1:{port} {{
  reverse_proxy {backend}
}}
"""
# Debian's folder of modules, or the one below the folder into which Apache was unpacked.
MODULES = Path(shutil.which("apache2") or "/usr/sbin/apache2").parent.parent / "lib/apache2/modules"
APACHE = f"""\
ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
DefaultRuntimeDir {folder}
ErrorLog /dev/stderr
LogLevel crit
Listen 127.0.0.1:{port}
ListenBackLog 511
LoadModule mpm_%(model)s_module {MODULES}/mod_mpm_%(model)s.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule proxy_module {MODULES}/mod_proxy.so
LoadModule proxy_http_module {MODULES}/mod_proxy_http.so
%(size)s
KeepAlive %(keeps)s
MaxKeepAliveRequests 0
ProxyPass / http://{backend}/
"""
PREFORK = f"StartServers {limit}\nMinSpareServers {limit}\nMaxSpareServers {limit}\nMaxRequestWorkers {limit}"
WORKER = f"StartServers 1\nServerLimit 1\nThreadsPerChild {limit}\nThreadLimit {limit}\nMaxRequestWorkers {limit}"
UNICORN = f"""\
listen "127.0.0.1:{port}", backlog: 511, tcp_nodelay: true
worker_processes {limit}
"""
PHP = """\
<?php
if (getenv("PLANT") === "cpu") { $until = hrtime(true) + 2e6; while (hrtime(true) < $until); }
else usleep(20000);
echo "ok\n";
"""


def wrote(name, text):
    (folder / name).write_text(text)
    return str(folder / name)


if kind == "haproxy":
    command = ["haproxy", "-db", "-f", wrote("haproxy.cfg", HAPROXY)]
elif kind == "caddy":
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", wrote("Caddyfile", CADDY)]
elif kind.startswith("apache"):
    prefork = kind.endswith("prefork")
    chosen = {"model": "prefork", "size": PREFORK, "keeps": "Off"}
    if not prefork:
        chosen = {"model": "worker", "size": WORKER, "keeps": "On"}
    command = ["apache2", "-D", "FOREGROUND", "-f", wrote("httpd.conf", APACHE % chosen)]
elif kind == "unicorn":
    rack = str(Path(__file__).with_name("config.ru"))
    command = ["unicorn", "-E", "none", "-c", wrote("unicorn.rb", UNICORN), rack]
elif kind == "nginx":
    command = ["nginx", "-p", str(folder), "-c", wrote("nginx.conf", NGINX % f"proxy_pass http://{backend};")]
else:
    subprocess.Popen([sys.argv[4], "-R", "-F", "-y", wrote("fpm.conf", FPM)])
    script = wrote("index.php", PHP)
    passed = (
        f"fastcgi_pass unix:{folder}/fpm.sock;",
        "fastcgi_param REQUEST_METHOD GET;",
        f"fastcgi_param SCRIPT_FILENAME {script};",
    )
    command = ["nginx", "-p", str(folder), "-c", wrote("nginx.conf", NGINX % " ".join(passed))]
os.execvp(command[0], command)
