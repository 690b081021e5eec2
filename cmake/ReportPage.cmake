# cmake -DFOLDER=tools/report -DOUT=report_page_text.cc -P ReportPage.cmake
#
# Puts the page, its style and its scripts into one C++ source: page.html with style.css and all scripts in
# the order of scripts.txt in the places of {{style}} and {{script}}. {{style_hash}} and {{script_hash}} are
# what the page's policy lets through; what stands in the place of {{data}} is added when a report is made.

# The base64 form of SHA-256, as the policy wants it. Three hexadecimal digits are two of base64.
function(policy_hash text out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hex "${text}")
  string(APPEND hex "00")
  set(hash "")
  foreach(start RANGE 0 63 3)
    string(SUBSTRING ${hex} ${start} 3 digits)
    math(EXPR high "0x${digits} >> 6")
    math(EXPR low "0x${digits} & 63")
    string(SUBSTRING ${alphabet} ${high} 1 first)
    string(SUBSTRING ${alphabet} ${low} 1 second)
    string(APPEND hash ${first}${second})
  endforeach()
  string(REGEX REPLACE ".$" "=" hash ${hash})
  set(${out} "sha256-${hash}" PARENT_SCOPE)
endfunction()

file(READ ${FOLDER}/page.html page)
file(READ ${FOLDER}/style.css style)
file(STRINGS ${FOLDER}/scripts.txt names)
set(script "")
foreach(name ${names})
  file(READ ${FOLDER}/${name} text)
  string(APPEND script "${text}")
endforeach()
set(script "'use strict';\n(() => {\n${script}})();\n")
policy_hash("${style}" style_hash)
policy_hash("${script}" script_hash)
foreach(part style_hash script_hash style script)
  string(REPLACE "{{${part}}}" "${${part}}" page "${page}")
endforeach()

string(FIND "${page}" "{{data}}" at)
string(SUBSTRING "${page}" 0 ${at} before)
math(EXPR at "${at} + 8")
string(SUBSTRING "${page}" ${at} -1 behind)
file(WRITE ${OUT} "// Made by cmake/ReportPage.cmake from tools/report/.
#include \"tools/report/report_data.h\"

namespace steptape::tools {

std::string_view page_before_data() { return R\"_page_(${before})_page_\"; }

std::string_view page_behind_data() { return R\"_page_(${behind})_page_\"; }

}  // namespace steptape::tools
")
