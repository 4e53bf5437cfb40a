"""Open the page that `wave inspect --html` writes in a headless browser, and look at it.

    apt install chromium-headless-shell        # or: pip install playwright && playwright install
    pip install playwright
    wave inspect DIR --html page.html
    python tests/python/check_page.py page.html [--browser /usr/bin/chromium-headless-shell]
        [--screenshots DIR]

On a telephone's and on a desk's screen, in light and in dark: the page has to stand alone (no request
but for itself, nothing blocked, no message on the console), every picture has to decode and every
drawing to have a size, every folded part has to open, text and picture may not reach beyond the
screen's edge, text has to stand out from what is behind it, and the sliders of a template directory's
page have to show another size.

Exit code: 0 all as it should be, 1 otherwise. Written for Python 3.10 or later and playwright 1.x.
"""

import argparse
import sys
from pathlib import Path

SCREENS = {"telephone": (360, 780), "desk": (1440, 900)}

LOOK = """() => {
    const all = selector => [...document.querySelectorAll(selector)];
    all('details').forEach(d => { d.open = true; });
    const box = e => e.getBoundingClientRect();
    const bare = e => box(e).width < 2 || box(e).height < 2;
    const luminance = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => {
            v /= 255;
            return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const body = luminance(getComputedStyle(document.body).color);
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = 'Canvas';
    const swatch = document.createElement('div');
    swatch.style.background = 'Canvas';
    document.body.append(swatch);
    const ground = luminance(getComputedStyle(swatch).backgroundColor);
    swatch.remove();
    const [light, dark] = [Math.max(body, ground), Math.min(body, ground)];
    const names = list => list.slice(0, 5).map(e => e.outerHTML.slice(0, 80));
    return {
        title: document.title,
        headings: all('h1, h2').length,
        images: all('img').length,
        drawings: all('svg').length,
        loads: all('script[src], link, iframe, object').length,
        broken: names(all('img').filter(i => !i.complete || i.naturalWidth === 0)),
        invisible: names(all('img, body > svg, section > svg, figure svg').filter(bare)),
        unnamed: names(all('img').filter(i => !i.alt)),
        wide: document.documentElement.scrollWidth - window.innerWidth,
        contrast: (light + 0.05) / (dark + 0.05),
    };
}"""


MOVE = """() => {
    const field = name => document.getElementById('composer-' + name);
    if (!field('depth')) return true;
    const shown = () => ['depth-value', 'width-value', 'command'].map(name => field(name).textContent);
    const before = shown();
    field('depth').value = Number(field('depth').value) + 1;
    field('width').value = Number(field('width').value) + 1;
    field('depth').dispatchEvent(new Event('input'));
    return shown().every((text, i) => text && text !== before[i]);
}"""


def problems(found, requests, messages, address):
    foreign = [url for url in requests if url != address and not url.startswith("data:")]
    checks = [
        (not foreign, f"asks for {foreign[:3]}"),
        (not messages, f"console: {messages[:3]}"),
        (found["title"] and found["headings"] > 1, "has no title or headings"),
        (found["images"] > 0, "has no pictures"),
        (found["loads"] == 0, "loads something"),
        (found["moved"], "does not show another size when its sliders move"),
        (not found["broken"], f"pictures that do not decode: {found['broken']}"),
        (not found["invisible"], f"pictures without a size: {found['invisible']}"),
        (not found["unnamed"], f"pictures without a text: {found['unnamed']}"),
        (found["wide"] <= 0, f"is {found['wide']} pixels wider than the screen"),
        (found["contrast"] >= 7, f"text has a contrast of {found['contrast']:.1f}"),
    ]
    return [said for holds, said in checks if not holds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    parser.add_argument("--browser", help="the executable (default: the one playwright installed)")
    parser.add_argument("--screenshots", type=Path, metavar="DIR")
    args = parser.parse_args()

    from playwright.sync_api import sync_playwright

    failed = False
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=args.browser, args=["--no-sandbox", "--disable-gpu"]
        )
        print(f"browser {browser.version}")
        for path in args.pages:
            for screen, (width, height) in SCREENS.items():
                for scheme in ("light", "dark"):
                    context = browser.new_context(
                        viewport={"width": width, "height": height},
                        color_scheme=scheme,
                        offline=True,
                    )
                    page, requests, messages = context.new_page(), [], []
                    page.on("request", lambda request: requests.append(request.url))
                    page.on("console", lambda message: messages.append(message.text))
                    page.on("pageerror", lambda error: messages.append(str(error)))
                    address = path.resolve().as_uri()
                    page.goto(address)
                    found = page.evaluate(LOOK)
                    found["moved"] = page.evaluate(MOVE)
                    page.wait_for_timeout(200)
                    said = problems(found, requests, messages, address)
                    name = f"{path.name}, {screen}, {scheme}"
                    counts = f"{found['images']} pictures, {found['drawings']} drawings"
                    print(f"{name}: {counts}, {'; '.join(said) or 'ok'}", flush=True)
                    failed |= bool(said)
                    if args.screenshots:
                        args.screenshots.mkdir(parents=True, exist_ok=True)
                        shot = args.screenshots / f"{path.stem}-{screen}-{scheme}.png"
                        page.screenshot(path=shot, full_page=True)
                    context.close()
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
