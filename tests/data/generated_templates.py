"""Random small chat templates: sentences of a grammar over what published templates use, with types that mostly fit.

make_template_oracles.py renders some of them with Jinja for the golden file. A sentence may well fail; then both must.
"""

import random

CONTEXT = {
    "text": "  Hello, World \u00e9\n", "words": "the quick  brown-fox (jumps)", "line": "a: 1\n\nb: 2\r\nc", "void": "",
    "number": 7, "zero": 0, "ratio": 2.5, "yes": True, "no": False, "nothing": None,
    "letters": ["x", "y", "zz", "B"], "numbers": [3, 1, 2, 1], "mixed": [1, "a", None, 2.5, True], "empty": [],
    "mapping": {"beta": 1, "alpha": [1, 2], "gamma": {"delta": None, "name": "<|x|>"}},
    "rows": [{"name": "b", "size": 2, "ok": True}, {"name": "A", "size": 10, "tag": "t"}, {"name": "c", "size": 2, "ok": False}],
    "chat": [{"role": "system", "content": " Be terse. "}, {"role": "user", "content": "Hi <b> \"q\" it's"},
             {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, {"role": "user", "content": ""}],
}
LOCALS = ["a", "b", "c"]  # set, looped over or passed by the sentences themselves
LITERALS = ["''", "'a'", "'x'", "' b '", '"it\'s"', "'\\n'", "'\u00e9'", "'o'", "'a-b c'", "'%s|%d'", "'</think>'", "'user'", "'{\"k\": 1}'"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, *choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    # Expressions: `kind` is what they should be, which they are not always. A backtick is a double quote.

    def expression(self, kind, depth):
        if self.chance(0.015):
            kind = self.one("text", "whole", "real", "truth", "list", "mapping", "any")
        if depth <= 0:
            return self.leaf(kind)
        return getattr(self, kind)(depth - 1)

    def leaf(self, kind):
        if self.chance(0.02):
            return self.one("missing", *LOCALS, "mapping.nope", "rows[0].ok", "letters[9]")
        return {
            "text": lambda: self.one("text", "words", "line", "void", "rows[1].name", "chat[2]['content']", "letters[0]", *LITERALS),
            "whole": lambda: self.one("number", "zero", "numbers[0]", "mapping.beta", "rows[1]['size']", "0", "1", "2", "3", "-1", "10", "100_0"),
            "real": lambda: self.one("ratio", "0.5", "1.0", "1e3", "-2.25", "42.55", "1e22", "0.1"),
            "truth": lambda: self.one("yes", "no", "true", "false", "rows[0].ok"),
            "list": lambda: self.one("letters", "numbers", "mixed", "empty", "[1, 2]", "['b', 'a']", "(1, 'x')", "[]", "mapping.alpha", "range(3)"),
            "mapping": lambda: self.one("mapping", "mapping.gamma", "rows[0]", "{}", "{'k': 1, 'a': 'b'}", "chat[0]", "dict(u=1)", "{1: 'one', true: 'yes', none: 2.5}"),
            "rowlist": lambda: self.one("rows", "chat", "rows[:2]", "rows[::-1]"),
            "any": lambda: self.leaf(self.one("text", "whole", "real", "truth", "list", "mapping")) if self.chance(0.9) else "nothing",
        }[kind]()

    def text(self, d):
        e = self.expression
        return self.one(
            lambda: f"{e('text', d)} + {e('text', d)}",
            lambda: f"({e('any', d)} ~ {e('any', d)})",
            lambda: f"{e('text', d)} * {self.one('0', '2', 'number')}",
            lambda: f"({e('text', d)}){self.one('.strip()', '.lstrip()', '.rstrip()', '.upper()', '.lower()', '.title()', '.capitalize()', '.swapcase()', '.copy()')}",
            lambda: f"({e('text', d)}).{self.one('strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix')}({e('text', d)})",
            lambda: f"({e('text', d)}).replace({e('text', d)}, {e('text', d)}{self.one('', ', 1', ', -1')})",
            lambda: f"({e('text', d)}).{self.one('zfill', 'ljust', 'rjust', 'center')}({self.one('0', '3', '12', '13')})",
            lambda: f"({e('text', d)}).join({e('list', d)})",
            lambda: f"({e('any', d)}) | {self.one('string', 'trim', 'upper', 'lower', 'title', 'capitalize', 'tojson', 'safe')}",
            lambda: f"({e('any', d)}) | tojson({self.one('', 'indent=2', 'ensure_ascii=true', 'separators=(`,`, `:`)', 'sort_keys=true', 'true', 'indent=0', 'indent=4, sort_keys=true')})",
            lambda: f"({e('text', d)}) | {self.one('indent', 'indent(2)', 'indent(2, true)', 'indent(1, blank=true)', 'indent(`> `)')}",
            lambda: f"({e('text', d)}) | replace({e('any', d)}, {e('any', d)})",
            lambda: f"({e('text', d)}) | {self.one('truncate(6)', 'truncate(9, true)', 'truncate(5, false, `~`, 0)', 'center(20)', 'trim(`x `)', 'reverse')}",
            lambda: f"({e('list', d)}) | join({self.one('', e('text', d), '`, `')})",
            lambda: f"({e('rowlist', d)}) | join(', ', attribute='{self.one('name', 'size', 'role')}')",
            lambda: f"({e('list', d)}) | {self.one('first', 'last', 'min', 'max')}",
            lambda: f"({e('text', d)})[{self.one('0', '-1', '2', ':3', '1:', '-3:', '::-1', '1:5:2', ':-1', '9', '1:-1', ':none', '::2')}]",
            lambda: f"({e('any', d)}) | default({e('any', d)}{self.one('', ', true', ', boolean=false')})",
            lambda: f"({e('any', d)} if {e('truth', d)} else {e('any', d)})",
            lambda: f"{self.one('`%s`', '`<%5s>`', '`%-4s|`', '`%r`', '`%.2s`')} % ({e('any', d)},)",
            lambda: f"{self.one('`%d`', '`%05d`', '`%+d`', '`%x`', '`%#X`', '`%+06x`', '`%-5d|`', '`% d`', '`%.3d`', '`%G`', '`%+.1e`', '`%.3f`', '`%8.2f|`', '`%e`', '`%g`')} % {e('whole', 0)}",
            lambda: f"'%s and %s' | format({e('any', d)}, {e('any', d)})",
            lambda: f"'%(k)s!' % {{'k': {e('any', d)}}}",
            lambda: f"({e('any', d)} or {e('any', d)})",
            lambda: f"({e('any', d)} and {e('any', d)})",
            lambda: f"{e('mapping', d)}.{self.one('name', 'role', 'content', 'alpha', 'k', 'nope')}",
            lambda: f"({e('mapping', d)})[{e('text', d)}]",
            lambda: f"{self.one('', '', 'loop is undefined or ')}loop.{self.one('index', 'index0', 'first', 'last', 'length', 'revindex', 'previtem', 'nextitem', 'depth', 'cycle(1, 2)', 'changed(a)')}",
            lambda: self.one("strftime_now('%Y-%m-%d')", "strftime_now('%d %b %Y, %A %H:%M')", "missing | upper"),
        )()

    def whole(self, d):
        e = self.expression
        return self.one(
            lambda: f"({e('whole', d)} {self.one('+', '-', '*', '//', '%')} {e('whole', d)})",
            lambda: f"({e('any', d)}) | {self.one('length', 'count')}",
            lambda: f"({e('any', d)}) | int{self.one('', '(5)', '(default=-1)', '(0, 16)')}",
            lambda: f"({e('text', d)}).{self.one('find', 'rfind', 'count', 'index')}({e('text', d)}{self.one('', ', 1', ', 1, 4', ', -3')})",
            lambda: f"({e('list', d)}).{self.one('count', 'index')}({e('any', d)})",
            lambda: f"-{e('whole', d)}",
            lambda: f"{e('whole', d)} | abs",
            lambda: f"({e('list', d)}) | sum",
            lambda: f"({e('rowlist', d)}) | sum(attribute='size')",
            lambda: f"{self.one('2', '3', '0', '-2')} ** {self.one('0', '1', '2', '3', '-1')}",
            lambda: f"+{e('whole', d)}",
        )()

    def real(self, d):
        e = self.expression
        return self.one(
            lambda: f"({e('whole', d)} / {e('whole', d)})",
            lambda: f"({e('real', d)} {self.one('+', '-', '*', '/', '//', '%')} {e('whole', d)})",
            lambda: f"({e('real', d)}) | round{self.one('', '(1)', '(2)', '(0, `floor`)', '(1, `ceil`)')}",
            lambda: f"({e('any', d)}) | float{self.one('', '(1.5)')}",
        )()

    def truth(self, d):
        e = self.expression
        return self.one(
            lambda: f"{e('any', d)} {self.one('==', '!=')} {e('any', d)}",
            lambda: f"{e('whole', d)} {self.one('<', '<=', '>', '>=')} {e('whole', d)}",
            lambda: f"({e('text', d)}) {self.one('<', '>=')} ({e('text', d)})",
            lambda: f"{e('whole', d)} < {e('whole', d)} <= {e('whole', d)}",
            lambda: f"({e('text', d)}) {self.one('in', 'not in')} ({e('text', d)})",
            lambda: f"({e('any', d)}) {self.one('in', 'not in')} ({self.one(e('list', d), e('mapping', d))})",
            lambda: f"not {e('any', d)}",
            lambda: f"({e('truth', d)} {self.one('and', 'or')} {e('truth', d)})",
            lambda: f"({e('any', d)}) is {self.one('', 'not ')}{self.one('defined', 'undefined', 'none', 'string', 'mapping', 'iterable', 'sequence', 'number', 'integer', 'float', 'boolean', 'true', 'false', 'callable', 'lower', 'upper')}",
            lambda: f"({e('whole', d)}) is {self.one('odd', 'even', 'divisibleby 2', 'divisibleby(3)', 'eq 1', 'gt 2', 'lessthan(4)', 'ne(0)', 'sameas none')}",
            lambda: f"({e('any', d)}) is in {self.leaf('list')}",
            lambda: f"({e('text', d)}).{self.one('startswith', 'endswith')}({self.one(e('text', d), '(' + self.leaf('text') + ', ' + self.leaf('text') + ')')})",
            lambda: f"({e('text', d)}).{self.one('isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'isalnum')}()",
        )()

    def list(self, d):
        e = self.expression
        return self.one(
            lambda: f"({e('text', d)}).{self.one('split()', 'split(none, 1)', 'rsplit()', 'splitlines()', 'splitlines(true)', 'split(` `)', 'rsplit(`o`, 1)', 'split(line[4:6])', 'partition(`:`)', 'rpartition(` `)')}",
            lambda: f"({e('text', d)}).split({e('text', d)})",
            lambda: f"({e('list', d)} + {e('list', d)})",
            lambda: f"({e('list', d)})[{self.one('0:1', '1:', ':-1', '::-1', '::2', '-2:')}]",
            lambda: f"({e('list', d)}) | {self.one('list', 'reverse | list', 'sort', 'sort(reverse=true)', 'unique | list', 'sort(case_sensitive=true)')}",
            lambda: f"({e('list', d)}) | map('{self.one('upper', 'string', 'length', 'int', 'tojson', 'trim', 'title')}') | list",
            lambda: f"({e('list', d)}) | map('{self.one('default', 'replace')}', 'x', 'y') | list",
            lambda: f"({e('list', d)}) | {self.one('select', 'reject')}{self.one('', '(`string`)', '(`odd`)', '(`equalto`, 1)', '(`in`, [1, `a`])', '(`number`)', '(`>`, 1)')} | list",
            lambda: f"({e('rowlist', d)}) | map(attribute='{self.one('name', 'size', 'ok', 'role', 'content')}'{self.one('', ', default=`-`')}) | list",
            lambda: f"({e('rowlist', d)}) | {self.one('selectattr', 'rejectattr')}('{self.one('ok', 'size', 'role', 'tag')}'{self.one('', ', `equalto`, 2', ', `defined`', ', `==`, `user`', ', `in`, [`user`, 2]')}) | map(attribute='{self.one('name', 'content')}') | list",
            lambda: f"({e('rowlist', d)}) | sort(attribute='{self.one('size', 'name', 'size,name', 'role')}') | map(attribute='name') | list",
            lambda: f"({e('mapping', d)}){self.one('.items() | list', '.keys() | list', '.values() | list', ' | items | list', ' | list', ' | dictsort', ' | dictsort(by=`value`)')}",
            lambda: f"({e('list', d)}) | {self.one('batch(2)', 'batch(2, 0)', 'slice(2)', 'slice(3, `-`)')} | list",
            lambda: f"[{e('any', d)}, {e('any', d)}]",
            lambda: f"({e('any', d)}, {e('any', d)})",
            lambda: f"range({self.one('4', '1, 4', '5, 0, -2', '0')}){self.one('', ' | list', '[1:]')}",
            lambda: f"({e('text', d)}) | list",
            lambda: f"[{e('any', d)}] * {self.one('0', '2')}",
        )()

    def mapping(self, d):
        e = self.expression
        return self.one(
            lambda: f"{{'k': {e('any', d)}, {self.one(self.one(*LITERALS), '1', 'text', 'none')}: {e('any', d)}}}",
            lambda: f"dict(a={e('any', d)}, b={e('any', d)})",
            lambda: f"({e('rowlist', d)})[{self.one('0', '1', '-1')}]",
            lambda: f"dict({e('mapping', d)}, z={e('any', d)})",
        )()

    def rowlist(self, d):
        e = self.expression
        return self.one(
            lambda: f"({e('rowlist', d)}) | {self.one('list', 'reverse | list', 'sort(attribute=`name`)')}",
            lambda: f"[{e('mapping', d)}, {e('mapping', d)}]",
            lambda: f"({e('rowlist', d)})[{self.one(':1', '1:', '::-1')}]",
        )()

    def any(self, d):
        return self.expression(self.one("text", "text", "whole", "real", "truth", "list", "mapping"), d)

    # Statements

    def tag(self, inside):
        return "{%" + self.one("", "", "-", "-", "+") + f" {inside} " + self.one("", "", "-", "-", "+") + "%}"

    def data(self):
        return self.one("x", " y ", "\n", "  \n  ", "\n\n", "a\n  ", "} { ", "\t", "<|im_start|>", "")

    def output(self, kind="any", depth=2):
        return "{{" + self.one("", "", "-") + f" {self.expression(kind, depth)} " + self.one("", "", "-") + "}}"

    def block(self, depth, loop=False):
        return "".join(self.data() + self.statement(depth, loop) for _ in range(self.random.randint(1, 3))) + self.data()

    def statement(self, depth, loop):
        if depth <= 0 or self.chance(0.35):
            return self.output()
        e, name = self.expression, self.one(*LOCALS)
        inner = lambda inside_loop=loop: self.block(depth - 1, inside_loop)
        choices = [
            lambda: self.tag(f"if {e('any', 2)}") + inner() + self.one("", self.tag(f"elif {e('truth', 1)}") + inner(), self.tag("else") + inner()) + self.tag("endif"),
            lambda: self.tag(f"for {name} in {e(self.one('list', 'list', 'rowlist', 'text', 'mapping'), 2)}" + self.one("", "", f" if {name}", " if " + e("truth", 1))) + inner(True) + self.one("", self.tag("else") + inner()) + self.tag("endfor"),
            lambda: self.tag(f"for a, b in {self.one('mapping.items()', 'mapping | dictsort', '[[1, 2], `xy`]', '{}.items()', 'mapping | items')}") + inner(True) + self.tag("endfor"),
            lambda: self.tag(f"set {name} = {e('any', 2)}"),
            lambda: self.tag(f"set a, b = {self.one('1, 2', '(`u`, `v`)', 'letters[:2]', 'letters', '[1, [2]]')}"),
            lambda: self.tag(f"set {name}{self.one('', ' | upper', ' | trim | length')}") + inner() + self.tag("endset"),
            lambda: self.tag(f"filter {self.one('upper', 'trim', 'replace(`x`, `y`)', 'indent(2, true)', 'length')}") + inner() + self.tag("endfilter"),
            lambda: self.tag(f"with {name} = {e('any', 2)}{self.one('', ', b = a')}") + inner() + self.tag("endwith"),
            lambda: self.tag(f"macro m{self.one('()', '(a)', '(a, b=2)', '(a=number, b=a)', '(c=missing)')}") + inner(False) + self.one("", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller else 'no' }}") + self.tag("endmacro")
            + "{{ m" + self.one("()", "(1)", "(1, 2)", "(b='k', a=3)", "(*letters)", "(**mapping)", f"({e('any', 1)})", "(1, 2, 3)", "(q=1)") + self.one("", " | upper", " ~ '!'") + " }}",
            lambda: self.tag("macro w(t, n=1)") + "<{{ t }}>{{ caller(n) if n else caller() }}" + self.tag("endmacro") + self.tag(f"call{self.one('', '(a)', '(a, b=9)')} w({e('text', 1)}{self.one('', ', 0', ', n=2')})") + inner(False) + self.tag("endcall"),
            lambda: self.tag(f"set ns = namespace({self.one('', 'v=0', 'v=[], u=`q`', 'mapping')})") + self.tag(f"for {name} in {self.leaf('list')}") + self.tag(f"set ns.v = {self.one('ns.v', 'ns.u', '1')} + {self.one('1', '[loop.index]', name)}") + inner(True) + self.tag("endfor") + "{{ ns.v }}",
            lambda: self.tag(f"for {name} in [1, [2, [3]], []] recursive") + "{{ loop.depth }}" + self.tag(f"if {name} is sequence") + "[{{ loop(" + name + ") }}]" + self.tag("else") + "{{ " + name + " }}" + self.tag("endif") + self.tag("endfor"),
            lambda: "{#" + self.one("", "-") + " note {{ 1 }} " + self.one("", "-", "+") + "#}",
            lambda: "{%" + self.one("", "-", "+") + " raw " + self.one("", "-") + "%}" + self.one("{{ x }}", " {% if %}\n", "plain") + self.tag("endraw"),
            lambda: self.tag("generation") + inner(False) + self.tag("endgeneration"),
            lambda: "{{ raise_exception('no: ' ~ " + e("any", 1) + ") }}" if self.chance(0.2) else self.output(),
        ]
        if loop:
            choices += [lambda: self.tag(f"if {e('truth', 1)}") + self.tag(self.one("break", "continue")) + self.tag("endif")] * 2
        return self.random.choice(choices)()

    def template(self):
        source = self.output(depth=3) if self.chance(0.3) else self.block(self.random.randint(1, 3))
        return source.replace("`", '"')


def templates(seed, count):
    generator = Generator(seed)
    return [generator.template() for _ in range(count)]
