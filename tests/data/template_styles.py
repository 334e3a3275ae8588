"""Chat templates in the styles that model families publish, in our own wording, for make_template_oracles.py."""

STYLES = {
    "llama2": """{%- if messages[0]['role'] == 'system' -%}
    {%- set rest = messages[1:] -%}
    {%- set rules = '<<SYS>>\\n' ~ messages[0]['content'] ~ '\\n<</SYS>>\\n\\n' -%}
{%- else -%}
    {%- set rest = messages -%}
    {%- set rules = false -%}
{%- endif -%}
{%- for turn in rest -%}
    {%- if (turn.role == 'user') != (loop.index0 is even) -%}
        {{- raise_exception('user and assistant have to take turns') -}}
    {%- endif -%}
    {%- set said = (rules ~ turn.content) if loop.first and rules is not false else turn.content -%}
    {%- if turn.role == 'user' -%}
        {{- bos_token ~ '[INST] ' ~ said.strip() ~ ' [/INST]' -}}
    {%- else -%}
        {{- ' ' ~ said.strip() ~ ' ' ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}""",
    "mistral_tools": """{%- set system = none %}
{%- set turns = messages %}
{%- if messages[0].role == "system" %}
    {%- set system = messages[0].content %}
    {%- set turns = messages[1:] %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set asked = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(place=0) %}
{%- for turn in turns %}
    {%- if turn.role in ["user", "assistant"] and not turn.tool_calls is defined %}
        {%- if (turn.role == "user") != (ns.place % 2 == 0) %}
            {{- raise_exception("After the system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.place = ns.place + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for turn in turns %}
    {%- if turn.role == "user" %}
        {%- if tools is not none and turn == asked[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, value in tool.function.items() if key != "return" %}
                    {{- '"' + key + '": ' }}{{ '"' + value + '"' if value is string else value | tojson }}
                    {{- ", " if not loop.last else "}}" }}
                {%- endfor %}
                {{- ", " if not loop.last else "]" }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + (system + "\\n\\n" if loop.last and system is not none else "") + turn.content + "[/INST]" }}
    {%- elif turn.tool_calls is defined and turn.tool_calls is not none %}
        {{- "[TOOL_CALLS] " }}
        {%- for call in turn.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}{{ ', "id": "' + (call.id | default("000000000")) + '"}' }}
        {%- endfor %}
        {{- eos_token }}
    {%- elif turn.role == "assistant" %}
        {{- " " + turn.content | trim + eos_token }}
    {%- elif turn.role in ["tool", "tool_results"] %}
        {{- '[TOOL_RESULTS] {"content": ' ~ turn.content | string ~ ', "call_id": "' ~ loop.index ~ '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool are known, not " + turn.role | tojson) }}
    {%- endif %}
{%- endfor %}
""",
    "gemma2": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles take turns: user, model, user ...') }}{% endif %}{% if m['role'] == 'assistant' %}{% set who = 'model' %}{% else %}{% set who = m['role'] %}{% endif %}{{ '<start_of_turn>' + who + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}""",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for m in turns -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles take turns") }}
    {%- endif -%}
    {%- set who = "model" if m['role'] == 'assistant' else m['role'] -%}
    {{ '<start_of_turn>' + who + '\\n' + (prefix if loop.first else "") }}
    {%- if m['content'] is string -%}
        {{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for part in m['content'] -%}
            {%- if part['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif part['type'] == 'text' -%}
                {{ part['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Content of no known type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""",
    "phi3": """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}""",
    "phi4": """{%- set tail = '<|im_end|>' -%}
{%- for message in messages -%}
    {%- set head = '<|im_start|>' ~ message.role ~ '<|im_sep|>' -%}
    {%- if message.role == 'assistant' -%}
        {{- head -}}{%- generation -%}{{- message.content ~ tail -}}{%- endgeneration -%}
    {%- else -%}
        {{- [head, message.content, tail] | join -}}
    {%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant<|im_sep|>' if add_generation_prompt -}}""",
    "granite": """{%- if messages[0]['role'] == 'system' %}
    {%- set rules = messages[0]['content'] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set rules = "Knowledge ends in April 2024.\\nToday is " + strftime_now('%B %d, %Y') + ".\\nAnswer as a careful assistant." %}
    {%- if tools and documents %}
        {%- set rules = rules + " Use the tools and the documents." %}
    {%- elif tools %}
        {%- set rules = rules + " Use the tools." %}
    {%- elif documents %}
        {%- set rules = rules + " Use the documents." %}
    {%- elif thinking %}
        {%- set rules = rules + " Think before you answer." %}
    {%- endif %}
    {%- set turns = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + rules + '<|end_of_text|>\\n' }}
{%- if tools %}
    {{- '<|start_of_role|>tools<|end_of_role|>' }}
    {{- tools | tojson(indent=4) }}
    {{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- if documents %}
    {{- '<|start_of_role|>documents<|end_of_role|>' }}
    {%- for document in documents %}
        {{- 'Document ' + loop.index | string + '\\n' + document['text'] }}
        {%- if not loop.last %}
            {{- '\\n\\n' }}
        {%- endif %}
    {%- endfor %}
    {{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- for message in turns %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' }}
            {%- if controls %}
                {{- ' ' + controls | tojson() }}
            {%- endif %}
        {{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}""",
    "deepseek_r1": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(first=false, tool=false, output=true, system='', first_system=true) %}{%- for m in messages %}{%- if m['role'] == 'system' %}{%- if ns.first_system %}{% set ns.system = ns.system + m['content'] %}{% set ns.first_system = false %}{%- else %}{% set ns.system = ns.system + '\\n\\n' + m['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for m in messages %}{%- if m['role'] == 'user' %}{%- set ns.tool = false -%}{{ '<\uff5cUser\uff5c>' + m['content'] }}{%- endif %}{%- if m['role'] == 'assistant' and 'tool_calls' in m %}{%- set ns.tool = false -%}{%- for call in m['tool_calls'] %}{%- if not ns.first %}{{ '<\uff5cAssistant\uff5c><\uff5ccalls begin\uff5c>' + call['type'] + '<\uff5csep\uff5c>' + call['function']['name'] + '\\n```json\\n' + (call['function']['arguments'] | tojson) + '\\n```<\uff5ccall end\uff5c>' }}{%- set ns.first = true -%}{%- else %}{{ '\\n' + call['function']['name'] }}{%- endif %}{%- endfor %}{{ '<\uff5ccalls end\uff5c>' }}{%- elif m['role'] == 'assistant' %}{%- if ns.tool %}{{ '<\uff5cresults end\uff5c>' + m['content'] + eos_token }}{%- set ns.tool = false -%}{%- else %}{% set content = m['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<\uff5cAssistant\uff5c>' + content + eos_token }}{%- endif %}{%- endif %}{%- if m['role'] == 'tool' %}{%- set ns.tool = true -%}{%- if ns.output %}{{ '<\uff5cresults begin\uff5c>' + m['content'] }}{%- set ns.output = false %}{%- else %}{{ '\\n<\uff5cresult\uff5c>' + m['content'] }}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.tool %}{{ '<\uff5cresults end\uff5c>' }}{% endif %}{% if add_generation_prompt and not ns.tool %}{{ '<\uff5cAssistant\uff5c><think>\\n' }}{% endif %}""",
    "command_r": """{%- macro open(role) %}<|START_OF_TURN_TOKEN|><|{{ role | upper }}_TOKEN|>{% endmacro %}
{%- macro close() %}<|END_OF_TURN_TOKEN|>{% endmacro %}
{%- macro python_type(kind) -%}
    {{ {'string': 'str', 'integer': 'int', 'number': 'float', 'boolean': 'bool'}[kind] or 'object' }}
{%- endmacro %}
{%- macro signature(tool) %}
def {{ tool.function.name }}({% for name, schema in tool.function.parameters.properties.items() -%}
    {{ name }}: {{ python_type(schema.type) }}{{ '' if name in tool.function.parameters.required else ' = None' }}{{ ', ' if not loop.last }}
{%- endfor %}):
    \\"\\"\\"{{ tool.function.description }}\\"\\"\\"
    pass
{% endmacro %}
{{- bos_token }}
{%- set turns = messages | rejectattr('role', 'equalto', 'system') | list %}
{%- set rules = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join('\\n') %}
{{- open('system') }}{{ rules | default('You are a capable assistant.', true) }}
{%- if tools %}

## Tools
```python
{%- for tool in tools %}{{ signature(tool) }}{% endfor -%}
```
{%- endif %}
{{- close() }}
{%- for turn in turns %}
    {{- open({'user': 'user', 'assistant': 'chatbot'}.get(turn.role, 'system')) }}
    {{- turn.content.strip() if turn.content is not none }}{{ close() }}
{%- endfor %}
{%- if documents %}
    {{- open('system') }}<results>
{% for document in documents -%}
Document: {{ loop.index0 }}
{% for key in document | sort -%}
{{ key }}: {{ document[key] }}
{% endfor %}
{%- endfor %}</results>
    {{- close() }}
{%- endif %}
{%- if add_generation_prompt %}{{ open('chatbot') }}{% endif %}""",
    "falcon": """{% for message in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}{% if message['role'] == 'system' %}{{ message['content'].strip() }}{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'].strip().replace('\\r\\n', '\\n').replace('\\n\\n', '\\n') }}{% elif message['role'] == 'assistant' %}{{ 'Falcon: ' + message['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '\\n' + 'Falcon:' }}{% endif %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "olmo2": """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\\n' + message['content'] + '\\n' }}{% elif message['role'] == 'user' %}{{ '<|user|>\\n' + message['content'] + '\\n' }}{% elif message['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>\\n' + message['content'] + eos_token + '\\n' }}{% else %}{{ '<|assistant|>\\n' + message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}{% endfor %}""",
    "qwen3": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Functions\\n\\nThese may be called:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nA call is an object with name and arguments inside <tool_call></tool_call>.<|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set place = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = place %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and thoughts)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if call.function %}
                    {%- set call = call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- call.name }}
                {{- '", "arguments": ' }}
                {%- if call.arguments is string %}
                    {{- call.arguments }}
                {%- else %}
                    {{- call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "typed_functions": """{%- macro type_of(schema, depth=0) -%}
    {%- if schema is not mapping or depth > 5 -%}
        any
    {%- elif schema.enum -%}
        {{ schema.enum | map('tojson') | join(' | ') }}
    {%- elif schema.type == 'array' -%}
        {{ type_of(schema['items'], depth + 1) }}[]
    {%- elif schema.type is sequence and schema.type is not string -%}
        {%- for one in schema.type -%}{{ type_of({'type': one}, depth + 1) ~ (' | ' if not loop.last else '') }}{%- endfor -%}
    {%- elif schema.type == 'object' -%}
        {{- '{' }}
        {%- for name, part in (schema.properties or {}).items() %}
            {{- '\\n' ~ '  ' * (depth + 1) ~ name ~ ('' if name in (schema.required or []) else '?') ~ ': ' ~ type_of(part, depth=depth + 1) ~ ',' }}
            {%- if part.description %}{{ ' // ' + part.description }}{% endif %}
        {%- endfor %}
        {{- '\\n' ~ '  ' * depth ~ '}' }}
    {%- elif schema.type in ['integer', 'number'] -%}
        number
    {%- else -%}
        {{ schema.type or 'any' }}
    {%- endif -%}
{%- endmacro -%}
{%- macro turn(role, name=none) -%}
    <|start|>{{ role }}{{ '' if name is none else ' name=' ~ name }}<|message|>{{ caller() | trim }}<|end|>
{%- endmacro -%}
{%- call turn('system') -%}
    Current date: {{ strftime_now("%Y-%m-%d") }}
    {%- if reasoning_effort %}

Effort: {{ reasoning_effort }}{% endif %}
{%- endcall -%}
{%- if tools -%}
    {%- call turn('developer') -%}
namespace functions {
{% for tool in tools %}
// {{ tool.function.description }}
type {{ tool.function.name }} = (_: {{ type_of(tool.function.parameters) }}) => any;
{% endfor %}
}
    {%- endcall -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.tool_calls -%}
        {%- for called in message.tool_calls -%}
            {%- call turn('assistant', name=called.function.name) %}{{ called.function.arguments | tojson }}{% endcall -%}
        {%- endfor -%}
    {%- else -%}
        {%- call turn(message.role) %}{{ message.content or '' }}{% endcall -%}
    {%- endif -%}
{%- endfor -%}
{{ '<|start|>assistant' if add_generation_prompt }}""",
    "xml_functions": """{%- macro extra(fields, handled) %}
    {%- if fields is mapping %}
        {%- for key in fields if key not in handled %}
            {%- set tag = key | replace("-", "_") | replace(" ", "_") | replace("$", "") %}
            {%- if fields[key] is mapping or (fields[key] is sequence and fields[key] is not string) %}
                {{- '\\n<' ~ tag ~ '>' ~ (fields[key] | tojson | safe) ~ '</' ~ tag ~ '>' }}
            {%- else %}
                {{- '\\n<' ~ tag ~ '>' ~ (fields[key] | string) ~ '</' ~ tag ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set system = messages | selectattr("role", "==", "system") | first %}
{%- if system is defined or tools %}
    {{- "<|im_start|>system\\n" + (system.content if system is defined else "Be of help.") }}
    {%- for tool in tools or [] %}
        {%- set function = tool.function if tool.function is defined else tool %}
        {{- "\\n<function>\\n<name>" ~ function.name ~ "</name>" }}
        {%- for name, fields in function.parameters.properties | items %}
            {{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' }}
            {{- extra(fields, ['name', 'required']) }}
            {{- '\\n</parameter>' }}
        {%- endfor %}
        {{- extra(function, ['type', 'name', 'description', 'parameters']) }}
        {{- '\\n</function>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "system" %}{% continue %}{% endif %}
    {%- if message.role == "tool" and (loop.previtem is not defined or loop.previtem.role != "tool") %}
        {{- '<|im_start|>user' }}
    {%- endif %}
    {%- if message.role == "tool" %}
        {{- '\\n<tool_response>\\n' ~ (message.content | indent(2, first=true)) ~ '\\n</tool_response>' }}
        {%- if loop.nextitem is undefined or loop.nextitem.role != "tool" %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content | default('', true) | trim }}
        {%- for call in message.tool_calls | default([]) %}
            {{- '\\n<function=' + call.function.name + '>' }}
            {%- for name, value in call.function.arguments | dictsort %}
                {{- '\\n<parameter=%s>\\n%s\\n</parameter>' % (name, value | tojson(ensure_ascii=true, separators=(',', ':')) if value is not string else value) }}
            {%- endfor %}
            {{- '\\n</function>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{{- '<|im_start|>assistant\\n' if add_generation_prompt else '' }}""",
}
