"""One planted limit, named by PLANT, on a Python server: further_app.py SERVER PORT SIZE. SIZE: the threads of
waitress, cheroot and twisted. The work is that of `wsgi_app` and `asgi_app`, with the size LIMIT."""

import asyncio
import os
import sys
import time

PLANT, LIMIT = os.environ.get("PLANT", "sleep"), int(os.environ.get("LIMIT", "1"))


def waitress(port, size):
    from waitress import serve
    from wsgi_app import app

    serve(app, host="127.0.0.1", port=port, threads=size, connection_limit=1000, backlog=511)


def cheroot(port, size):
    from cheroot.wsgi import Server
    from wsgi_app import app

    Server(("127.0.0.1", port), app, numthreads=size, request_queue_size=511, max=size).start()


def aiohttp(port, size):
    from aiohttp import ClientSession, web
    from asgi_app import work

    session = None

    async def answer(request):
        nonlocal session
        if PLANT == "proxy":
            session = session or ClientSession()
            async with session.get(os.environ["BACKEND"]) as got:
                await got.read()
        else:
            await work()
        return web.Response(text="ok\n")

    served = web.Application()
    served.router.add_get("/", answer)
    web.run_app(served, host="127.0.0.1", port=port, print=None, access_log=None, backlog=511)


def tornado(port, size):
    from asgi_app import work
    from tornado.web import Application, RequestHandler

    class Answer(RequestHandler):
        async def get(self):
            await work()
            self.write("ok\n")

        def log_request(self):
            pass

    async def main():
        Application([("/", Answer)], log_function=lambda _: None).listen(port, "127.0.0.1", backlog=511)
        await asyncio.Event().wait()

    asyncio.run(main())


def twisted(port, size):
    from twisted.internet import reactor
    from twisted.internet.threads import deferToThread
    from twisted.web.resource import Resource
    from twisted.web.server import NOT_DONE_YET, Site

    class Answer(Resource):
        isLeaf = True  # noqa: N815

        def render_GET(self, request):  # noqa: N802
            if PLANT == "blocked":
                time.sleep(0.005)
                return b"ok\n"
            deferToThread(time.sleep, 0.02).addCallback(lambda _: (request.write(b"ok\n"), request.finish()))
            return NOT_DONE_YET

    reactor.suggestThreadPoolSize(size)
    reactor.listenTCP(port, Site(Answer()), 511, "127.0.0.1")
    reactor.run()


def sanic(port, size):
    from asgi_app import work
    from sanic import Sanic
    from sanic.response import text

    served = Sanic("planted", configure_logging=False)

    @served.get("/")
    async def answer(request):
        await work()
        return text("ok\n")

    served.run(host="127.0.0.1", port=port, single_process=True, motd=False, access_log=False, backlog=511)


if __name__ == "__main__":
    locals()[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
